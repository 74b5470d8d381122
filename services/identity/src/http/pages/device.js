// Shows the device request of a code, and allows or denies it. The page logs in for this and logs out after the decision,
// after an error, and when it is closed.

import { finish, parameters, post, run, show } from "./page.js";

const login = document.getElementById("login");
const { code, tenant, email, password } = login.elements;
const request = document.getElementById("request");
let session = null;

const bearer = () => ({ authorization: `Bearer ${session}` });

async function logOut() {
  if (!session) return;
  const headers = { "x-session-id": session };
  session = null;
  // If this fails, the idle timeout ends the session.
  await fetch("../auth/sessions/logout", { method: "POST", headers, keepalive: true }).catch(() => {});
}

function showRequest(device) {
  document.getElementById("name").textContent = device.client_name ?? "unknown";
  document.getElementById("address").textContent = device.ip ?? "unknown";
  document.getElementById("time").textContent = new Date(device.created_at).toLocaleString();
  document.getElementById("shown").textContent = code.value.toUpperCase();
  password.value = "";
  login.hidden = true;
  request.hidden = false;
  show("");
  request.focus();
}

async function inspect() {
  const credentials = { email: email.value, password: password.value };
  session = (await post("../auth/password/login", credentials, { "x-tenant-id": tenant.value })).session_id;
  try {
    showRequest(await post("../auth/device/inspect", { user_code: code.value }, bearer()));
  } catch (error) {
    await logOut();
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
    request.hidden = true;
    await logOut();
  }
  finish(request.dataset[decision]);
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  run(inspect, password);
});
for (const decision of ["approve", "deny"]) {
  document.getElementById(decision).addEventListener("click", () => run(() => decide(decision), code));
}
addEventListener("pagehide", logOut);

code.value = parameters.get("user_code") ?? "";
tenant.value = parameters.get("tenant") ?? "";
[code, tenant, email].find((field) => !field.value)?.focus();
