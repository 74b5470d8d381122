// Sets a password with the token of a link, after the link was checked.

import * as page from "./page.js";
import { findToken } from "./token.js";

const form = document.querySelector("#task form");
const { action, field, inspect, kind } = form.dataset;
const password = page.element("password");
const paste = page.element("paste");

// Quotes a word for a POSIX shell.
const quoted = (word) => (/^[\w@.:\/+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

function showDone({ tenant_id, tenant, email }) {
  const words = ["--base-url", location.origin, "--tenant", tenant_id, "--email", email];
  page.element("command").textContent = `svc auth login ${words.map(quoted).join(" ")}`;
  page.link(page.element("sessions-link"), { tenant: tenant_id, email });
  page.compose(page.element("done-account"), "done.account", { tenant, email });
  page.showSection("done");
}

const organization = ({ tenant_id, tenant_name }) =>
  tenant_name === tenant_id ? tenant_id : `${tenant_name} (${tenant_id})`;

function showAccount(account) {
  const { email, invited_by, expires_at, password_min_length } = account;
  page.requireLength(password_min_length);
  const key = invited_by ? form.dataset.accountBy : form.dataset.account;
  page.compose(page.element("account"), key, { tenant: organization(account), email, invited_by });
  page.fill({ expires_at: page.zonedTime(expires_at) });
  page.element("email").value = page.userName(account);
}

// The token stays in this tab, so that a reload shows the same.
function rejectToken(error) {
  page.showFailure(page.message(error), "remedy");
}

// The link was damaged on its way. The person pastes the address or the token from the e-mail.
function askForLink() {
  page.forget();
  page.showFailure(page.text("token.incomplete"), "repair");
  paste.focus();
  page.onSubmit(page.element("repair"), {
    check: () => {
      if (paste.value && !findToken(paste.value)) page.showError(paste, page.text("token.not_found"));
    },
    action: async () => page.openLink(findToken(paste.value)),
  });
}

async function setPassword(token, account) {
  try {
    const options = [...form.querySelectorAll("[type=checkbox]")].map(({ id, checked }) => [id, checked]);
    const body = { token, [field]: password.value, ...Object.fromEntries(options) };
    await page.post(action, body, undefined, "password.unknown");
  } catch (error) {
    if (error.code === "token_invalid") return rejectToken(error);
    throw error;
  }
  form.reset();
  const { tenant_id, email } = account;
  const done = { tenant_id, tenant: organization(account), email };
  page.finish(done);
  showDone(done);
}

async function checkLink(token) {
  let account;
  try {
    account = await page.busy(() => page.post(inspect, { token }));
  } catch (error) {
    return error.code === "token_invalid" ? rejectToken(error) : page.showFailure(page.message(error));
  }
  showAccount(account);
  page.onSubmit(form, {
    check: page.checkAgain,
    action: () => setPassword(token, account),
    fieldOf: page.newPasswordOf,
  });
  password.focus();
}

page.offerCopy("command");

const found = findToken(page.fragment());
if (found && found.kind !== kind) page.openLink(found);
else if (found) checkLink(found.token);
else if (!page.fragment() && page.result()) showDone(page.result());
else askForLink();
