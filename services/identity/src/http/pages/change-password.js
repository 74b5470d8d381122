// Changes a password that the person knows.

import * as page from "./page.js";
import { bearer, logIn, logOut, whileLoggedIn } from "./login.js";

const form = document.querySelector("form");
const { tenant, email, current, password } = form.elements;
// Whether a change got no response: a login that fails after it can mean that the password was changed.
let isUnknown = false;

async function change() {
  const user_id = await logIn({ tenant, email, password: current });
  const body = { current_password: current.value, new_password: password.value };
  const headers = () => ({ ...bearer(), "x-tenant-id": tenant.value, "x-user-id": user_id });
  await whileLoggedIn(() => page.post("auth/password/change", body, headers(), "password.unknown"));
  await logOut();
  const done = { tenant: tenant.value, email: email.value };
  form.reset();
  page.finish(done);
  showDone(done);
}

async function action() {
  try {
    await change();
  } catch (error) {
    if (error.code === "login_failed" && isUnknown) error.message += ` ${page.text("password.unknown")}`;
    isUnknown ||= error.isPossible;
    throw error;
  }
}

function showDone(account) {
  page.compose(page.element("done-account"), "done.account", account);
  [tenant.value, email.value] = [account.tenant, account.email];
  page.showSection("done");
}

const fieldOf = (code) => (code === "login_failed" ? current : page.codeOf(code) ?? page.newPasswordOf(code));

page.startAgain();
if (page.result()) showDone(page.result());
else {
  page.onSubmit(form, { check: page.checkAgain, action, fieldOf });
  page.prefill(tenant, email, current);
}
