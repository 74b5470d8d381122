// Posts a new password with the token that stands in the address behind `#token=`.

import { busy, finish, parameters, post, refuse } from "./page.js";

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
  if (password.value === again.value) busy(send, password);
  else refuse("The two passwords are not the same.", again);
});

if (!token) {
  form.hidden = true;
  refuse("The link is not complete. Open the whole link of the mail, or ask for a new one.");
}
