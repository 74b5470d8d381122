// Requests the mail of a password reset. The response is the same whether or not the account exists.

import * as page from "./page.js";

const form = document.querySelector("form");
const { tenant, email } = form.elements;

page.onSubmit(form, {
  action: async () => {
    await page.post("auth/password/reset", { email: email.value }, { "x-tenant-id": tenant.value });
    page.fill({ tenant: tenant.value, email: email.value });
    page.forget();
    page.showSection("done");
  },
});
page.prefill(tenant, email);
