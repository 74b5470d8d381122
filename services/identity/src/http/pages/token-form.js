// Posts a new password with the token of the URL fragment (`#token=`).

import { finish, parameters, post, run, showError } from "./page.js";

const form = document.querySelector("form");
const [password, again] = form.querySelectorAll("input");
const token = parameters.get("token");

async function send() {
  await post(form.dataset.path, { token, [form.dataset.field]: password.value });
  form.hidden = true;
  finish(form.dataset.done);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (password.value === again.value) run(send, password);
  else showError("The passwords do not match.", again);
});

if (!token) {
  form.hidden = true;
  showError("The link is incomplete. Open the complete link from the e-mail, or request a new one.");
}
