// Posts a new password with the token that stands in the address behind `#token=`. The fragment never reaches a server,
// and it leaves the address bar as soon as it is read.
"use strict";

const form = document.querySelector("form");
const button = form.querySelector("button");
const answer = document.getElementById("answer");
const [password, again] = form.querySelectorAll("input");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
history.replaceState(null, "", location.pathname);

function say(text, kind) {
  answer.textContent = text;
  answer.className = kind;
}

function refuse(text, field) {
  say(text, "bad");
  field?.focus();
}

async function send() {
  const response = await fetch(form.dataset.path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token, [form.dataset.field]: password.value }),
  });
  if (response.ok) {
    form.hidden = true;
    say(form.dataset.done, "good");
    return;
  }
  const problem = await response.json();
  refuse(`${problem.title}. ${problem.errors?.[0]?.message ?? problem.detail}`, password);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (password.value !== again.value) {
    refuse("The two passwords are not the same.", again);
    return;
  }
  button.disabled = true;
  say("One moment …", "");
  try {
    await send();
  } catch {
    refuse("The service cannot be reached now. Try again in a moment.", button);
  } finally {
    button.disabled = false;
  }
});

if (!token) {
  form.hidden = true;
  refuse("The link is not complete. Open the whole link of the mail, or ask for a new one.");
}
