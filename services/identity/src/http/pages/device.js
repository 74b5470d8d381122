// Shows the device request of a code, and allows or denies it. The page logs in for this and logs out after the decision,
// after an error, and when it is closed.

import * as page from "./page.js";

const form = document.querySelector("form");
const { code, tenant, email, password } = form.elements;
let session = null;

const bearer = () => ({ authorization: `Bearer ${session}` });

async function logOut() {
  if (!session) return;
  const headers = { "x-session-id": session };
  session = null;
  // If this fails, the idle timeout ends the session.
  await page.send("POST", "auth/sessions/logout", { headers, keepalive: true }).catch(() => {});
}

function showRequest(device) {
  page.element("name").textContent = device.client_name ?? page.text("unknown");
  page.element("address").textContent = device.ip ?? page.text("unknown");
  page.element("time").textContent = page.time(device.created_at);
  page.fill({ code: code.value.toUpperCase(), tenant: tenant.value, email: email.value });
  password.value = "";
  page.showSection("request");
}

async function device(path, body) {
  try {
    return await page.post(`auth/device/${path}`, { user_code: code.value, ...body }, bearer());
  } catch (error) {
    if (error.code === "not_found") error.message = page.text("device.unknown");
    throw error;
  }
}

async function inspect() {
  const credentials = { email: email.value, password: password.value };
  session = (await page.post("auth/password/login", credentials, { "x-tenant-id": tenant.value })).session_id;
  try {
    showRequest(await device("inspect"));
  } catch (error) {
    await logOut();
    throw error;
  }
}

async function decide(decision) {
  try {
    await page.busy(() => device("decide", { decision }).finally(logOut));
    page.forget();
    page.showSection(decision === "approve" ? "approved" : "denied");
  } catch (error) {
    page.showSection("task");
    page.showError(fieldOf(error.code), page.message(error));
    page.focusError(form);
  }
}

const fieldOf = (problem) => ({ login_failed: password, not_found: code })[problem];

page.onSubmit(form, { action: inspect, fieldOf });
page.element("approve").addEventListener("click", () => decide("approve"));
page.element("deny").addEventListener("click", () => decide("deny"));
addEventListener("pagehide", logOut);
page.prefill(code, tenant, email, password);
