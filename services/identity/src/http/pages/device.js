// Shows what asks under a code, and lets it in or not. The session that this takes is made for it, is known to this page
// alone, and ends with the decision, with a mistake, or when the page is left.

import { busy, finish, parameters, post, say } from "./page.js";

const login = document.getElementById("login");
const { code, tenant, email, password } = login.elements;
const asking = document.getElementById("asking");
let session = null;

const bearer = () => ({ authorization: `Bearer ${session}` });

async function end() {
  if (!session) return;
  const headers = { "x-session-id": session };
  session = null;
  // Where this fails, the session ends by itself before long.
  await fetch("../auth/sessions/logout", { method: "POST", headers, keepalive: true }).catch(() => {});
}

function show(device) {
  document.getElementById("name").textContent = device.client_name ?? "nothing";
  document.getElementById("address").textContent = device.ip ?? "unknown";
  document.getElementById("time").textContent = new Date(device.created_at).toLocaleString();
  document.getElementById("shown").textContent = code.value.toUpperCase();
  password.value = "";
  login.hidden = true;
  asking.hidden = false;
  say("");
  asking.focus();
}

async function look() {
  const proof = { email: email.value, password: password.value };
  session = (await post("../auth/password/login", proof, { "x-tenant-id": tenant.value })).session_id;
  try {
    show(await post("../auth/device/inspect", { user_code: code.value }, bearer()));
  } catch (error) {
    await end();
    error.field = code;
    throw error;
  }
}

async function decide(decision) {
  try {
    await post("../auth/device/decide", { user_code: code.value, decision }, bearer());
  } catch (error) {
    login.hidden = false;
    throw error;
  } finally {
    asking.hidden = true;
    await end();
  }
  finish(asking.dataset[decision]);
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(look, password);
});
for (const decision of ["approve", "deny"]) {
  document.getElementById(decision).addEventListener("click", () => busy(() => decide(decision), code));
}
addEventListener("pagehide", end);

code.value = parameters.get("user_code") ?? "";
tenant.value = parameters.get("tenant") ?? "";
[code, tenant, email].find((field) => !field.value)?.focus();
