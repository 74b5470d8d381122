// Sets a password with the token of the URL fragment (`#token=`), after the link was checked.

import * as page from "./page.js";

const form = document.querySelector("form");
const { action, field, inspect } = form.dataset;
const password = page.element("password");
const again = page.element("again");
const token = page.parameters.get("token");

function rejectToken(error) {
  page.forget();
  page.showFailure(page.message(error), false);
}

// Quotes a word for a POSIX shell.
const quoted = (word) => (/^[\w@.:\/+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

function finish({ tenant_id, email }) {
  page.forget();
  form.reset();
  const words = ["--base-url", location.origin, "--tenant", tenant_id, "--email", email];
  page.element("command").textContent = `svc auth login ${words.map(quoted).join(" ")}`;
  page.link(page.element("sessions-link"), { tenant: tenant_id, email });
  page.showSection("done");
}

function showAccount(account) {
  const { tenant_id, tenant_name, email, invited_by, expires_at } = account;
  const tenant_text = tenant_name === tenant_id ? tenant_id : `${tenant_name} (${tenant_id})`;
  page.fill({ tenant_text, email, expires_at: page.time(expires_at) });
  page.element("email").value = email;
  if (!invited_by) return;
  page.fill({ invited_by });
  page.element("inviter").hidden = false;
  page.element("inviter").nextElementSibling.hidden = false;
}

async function checkLink() {
  if (!token) return page.showFailure(page.text("token.incomplete"), false);
  let account;
  try {
    account = await page.busy(() => page.post(inspect, { token }));
  } catch (error) {
    return error.code === "token_invalid" ? rejectToken(error) : page.showFailure(page.message(error), true);
  }
  showAccount(account);
  page.onSubmit(form, {
    check: () => {
      if (again.value && again.value !== password.value) page.showError(again, page.text("error.again"));
    },
    action: async () => {
      try {
        const options = [...form.querySelectorAll("[type=checkbox]")].map(({ id, checked }) => [id, checked]);
        await page.post(action, { token, [field]: password.value, ...Object.fromEntries(options) });
      } catch (error) {
        if (error.code === "token_invalid") return rejectToken(error);
        throw error;
      }
      finish(account);
    },
    fieldOf: (code) => (code?.startsWith("password_") ? password : undefined),
  });
  password.focus();
}

checkLink();
