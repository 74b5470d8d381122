// Changes a password that the person knows.

import * as page from "./page.js";
import { bearer, logIn, logOut } from "./login.js";

const form = document.querySelector("form");
const { tenant, email, current, password } = form.elements;

async function change() {
  const user_id = await logIn({ tenant, email, password: current });
  try {
    const body = { current_password: current.value, new_password: password.value };
    await page.post("auth/password/change", body, { ...bearer(), "x-tenant-id": tenant.value, "x-user-id": user_id });
  } finally {
    await logOut();
  }
  const done = { tenant: tenant.value, email: email.value };
  form.reset();
  page.finish(done);
  showDone(done);
}

function showDone(account) {
  page.compose(page.element("done-account"), "done.account", account);
  page.link(page.element("sessions-link"), account);
  page.showSection("done");
}

const fieldOf = (code) => (code === "login_failed" ? current : page.codeOf(code) ?? page.newPasswordOf(code));

page.startAgain();
if (page.result()) showDone(page.result());
else {
  page.onSubmit(form, { check: page.checkAgain, action: change, fieldOf });
  page.prefill(tenant, email, current);
}
