// Shows the device request of a code, and connects the device or not.

import * as page from "./page.js";
import { bearer, logIn, logOut, whileLoggedIn } from "./login.js";

const form = document.querySelector("form");
const { code, tenant, email, password } = form.elements;
// The code as the device shows it, so that the person can compare it.
const shownCode = () => code.value.toUpperCase().replace(/[^A-Z]/g, "").replace(/^.{4}/, "$&-");

function showRequest(device) {
  page.element("name").textContent = device.client_name ?? page.text("unknown");
  page.element("address").textContent = device.ip ?? page.text("unknown");
  page.element("time").textContent = page.time(device.created_at);
  page.fill({ code: shownCode(), tenant: tenant.value, email: email.value });
  password.value = "";
  page.showSection("request");
}

async function device(path, body, unknown) {
  try {
    const request = { user_code: code.value, ...body };
    return await whileLoggedIn(() => page.post(`auth/device/${path}`, request, bearer(), unknown));
  } catch (error) {
    if (error.code === "not_found") error.message = page.text("device.unknown");
    throw error;
  }
}

async function inspect() {
  await logIn({ tenant, email, password });
  showRequest(await device("inspect"));
}

function showDecision({ decision, isLoggedOut }) {
  for (const item of document.querySelectorAll(".logged-out")) item.hidden = !isLoggedOut;
  for (const item of document.querySelectorAll(".still-logged-in")) item.hidden = isLoggedOut;
  page.showSection(decision === "approve" ? "approved" : "denied");
}

async function decide(decision) {
  try {
    const isLoggedOut = await page.busy(async () => {
      await device("decide", { decision }, "device.undecided");
      return logOut();
    });
    const done = { decision, isLoggedOut };
    page.finish(done);
    showDecision(done);
  } catch (error) {
    page.showSection("task");
    page.showError(fieldOf(error.code), page.message(error));
    page.focusError(form);
  }
}

const fieldOf = (problem) => ({ login_failed: password, not_found: code })[problem] ?? page.codeOf(problem);

page.element("approve").addEventListener("click", () => decide("approve"));
page.element("deny").addEventListener("click", () => decide("deny"));
page.startAgain();
if (page.result()) showDecision(page.result());
else {
  page.onSubmit(form, { action: inspect, fieldOf });
  page.prefill(code, tenant, email, password);
}
