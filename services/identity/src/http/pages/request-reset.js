// Requests the mail of a password reset. The response is the same whether or not the account exists.

import * as page from "./page.js";

const form = document.querySelector("form");

function offer({ tenant, email }) {
  page.startAgain();
  page.onSubmit(form, { action: () => request(tenant, email) });
  page.element("again").addEventListener("click", () => page.showSection("task"));
  page.prefill(tenant, email);
  if (!page.result()) return;
  [tenant.value, email.value] = [page.result().tenant, page.result().email];
  showDone(page.result());
}

async function request(tenant, email) {
  await page.post("auth/password/reset", { email: email.value }, { "x-tenant-id": tenant.value });
  const done = { tenant: tenant.value, email: email.value };
  page.finish(done);
  showDone(done);
}

function showDone(account) {
  page.compose(page.element("done-account"), "done.account", account);
  page.showSection("done");
}

// Without a mail server, the page has no form.
if (form) offer(form.elements);
