// Sets up and removes the second factors of a user. The page keeps its login in its own memory only. If a login must set up a factor, its
// form opens this page with the challenge, which permits the set-up.

import * as page from "./page.js";
import * as passkey from "./passkey.js";
import { adopt, bearer, logIn, logOut } from "./login.js";

const [loginForm, passkeyForm, setupForm] = document.forms;
const { tenant, email, password } = loginForm.elements;
const firstCode = page.element("first-code");
const passkeyName = page.element("passkey-name");
const rows = page.element("factors");

// The challenge of a login that waits for the set-up.
let challenge = page.parameters.get("setup");
// The factor that the person wants to remove.
let removing;

const account = () => ({ tenant: tenant.value, email: email.value });
const headers = () => ({ "x-tenant-id": tenant.value });
const EXPIRED = ["unauthenticated", "credential_invalid", "reauthentication_required"];

function showLogin(notice) {
  challenge = null;
  page.forget();
  page.element("notice").textContent = notice ?? "";
  page.element("notice").hidden = !notice;
  page.showSection("task");
  page.prefill(tenant, email, password);
}

function row(factor) {
  const item = page.element("factor").content.cloneNode(true).firstElementChild;
  const [created, used] = [factor.created_at, factor.last_used_at].map((time) => time && page.time(time));
  const times = used ? page.text("factors.times", { created, used }) : page.text("factors.unused", { created });
  item.querySelector("bdi").textContent = factor.name ?? page.text("factors.app");
  item.querySelector("[data-field=times]").textContent = times;
  const button = item.querySelector("button");
  button.setAttribute("aria-label", `${button.textContent}: ${factor.name ?? page.text("factors.app")}`);
  item.querySelector("button").addEventListener("click", () => {
    removing = factor.factor_id;
    page.showSection("removal");
  });
  return item;
}

async function list() {
  const { factors, recovery_codes: count } = await page.send("GET", "auth/factors", { headers: bearer() });
  rows.replaceChildren(...factors.map(row));
  page.element("none").hidden = factors.length > 0;
  page.element("add").hidden = factors.some(({ type }) => type === "totp");
  page.element("recovery").hidden = factors.length === 0;
  page.element("left").textContent = page.text("factors.left", { count });
  page.compose(page.element("list-account"), "done.account", account());
  page.showSection("list");
}

async function setUp() {
  const app = challenge
    ? await page.post("auth/second-factor/totp", { challenge }, headers())
    : await page.post("auth/factors/totp", undefined, bearer());
  page.element("required").hidden = !challenge;
  page.element("qr").src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(app.qr_code)}`;
  page.element("secret").textContent = app.secret.replace(/.{4}(?=.)/g, "$& ");
  page.element("app-link").href = app.uri;
  firstCode.value = "";
  page.showSection("setup");
}

// Returns the recovery codes.
async function confirmApp() {
  const code = firstCode.value;
  if (challenge) {
    const session = await page.post("auth/second-factor", { challenge, code }, headers());
    adopt(session.session_id);
    challenge = null;
    return session.recovery_codes;
  }
  const { recovery_codes: codes } = await page.post("auth/factors/totp/confirm", { code }, bearer());
  // With the first factor, further changes need a login with it.
  if (codes.length) await logOut();
  return codes;
}

// Creates a passkey on this device or another one, and registers it.
async function addPasskey() {
  const options = await page.post("auth/factors/passkeys/options", undefined, bearer());
  const credential = await passkey.create(options.public_key).catch((error) => {
    throw error instanceof DOMException ? new page.Problem(null, page.text("factors.passkey.none")) : error;
  });
  const body = { challenge: options.challenge, name: passkeyName.value, credential };
  const { recovery_codes: codes } = await page.post("auth/factors/passkeys", body, bearer());
  passkeyName.value = "";
  if (!codes) return list();
  // Further changes need a login with the factor.
  await logOut();
  showCodes(codes);
}

async function confirm() {
  try {
    const codes = await confirmApp();
    page.forget();
    if (codes.length) return showCodes(codes);
    await list();
    page.element("left").prepend(`${page.text("factors.kept")} `);
  } catch (error) {
    if (error.code === "token_invalid") return showLogin(page.text("error.otp_expired"));
    if (EXPIRED.includes(error.code)) return showLogin(page.text("factors.expired"));
    throw error.code === "validation_failed" ? new page.Problem("second_factor_failed") : error;
  }
}

function showCodes(codes) {
  page.element("recovery-codes").textContent = codes.join("\n");
  page.element("copy").textContent = page.text("copy");
  page.compose(page.element("codes-account"), "done.account", account());
  page.showSection("codes");
}

// Where the person wanted to log in, or the list.
async function continueAfterCodes() {
  page.element("recovery-codes").textContent = "";
  const next = ["sessions", "device", "change-password"].find((name) => name === page.parameters.get("next"));
  if (next) {
    const code = page.parameters.get("user_code");
    const values = new URLSearchParams({ ...account(), ...(code && { user_code: code }) });
    return location.assign(new URL(`${next}#${values}`, location.href));
  }
  if (bearer()) return list();
  showLogin(page.text("factors.again"));
}

async function remove() {
  await page.send("DELETE", `auth/factors/${removing}`, { headers: bearer() });
  await list();
}

async function renew() {
  const { recovery_codes: codes } = await page.post("auth/factors/recovery-codes", undefined, bearer());
  showCodes(codes);
}

// Runs an action. If the login of the page is too old for it, shows the login again.
async function run(action, result = "") {
  page.element("list-error").hidden = true;
  try {
    await page.busy(action);
    page.element("status").textContent = result;
  } catch (error) {
    if (error.code === "token_invalid") return showLogin(page.text("error.otp_expired"));
    if (EXPIRED.includes(error.code)) return showLogin(page.text("factors.expired"));
    if (!bearer()) return page.showFailure(page.message(error));
    page.showSection("list");
    page.element("list-error").textContent = page.message(error);
    page.element("list-error").hidden = false;
    page.element("list-error").focus();
  }
}

async function open() {
  await logIn({ tenant, email, password });
  page.forget();
  password.value = "";
  await list();
}

async function cancel() {
  if (!challenge) return list();
  showLogin();
}

page.onSubmit(loginForm, { action: open, fieldOf: (code) => (code === "login_failed" ? password : page.codeOf(code)) });
if (passkey.canBeCreated()) page.onSubmit(passkeyForm, { action: addPasskey, fieldOf: () => passkeyName });
page.onSubmit(setupForm, { action: confirm, fieldOf: () => firstCode });
page.element("add").addEventListener("click", () => run(setUp));
page.element("cancel").addEventListener("click", () => run(cancel));
page.element("remove").addEventListener("click", () => run(remove, page.text("factors.removed")));
page.element("keep").addEventListener("click", () => page.showSection("list"));
page.element("renew").addEventListener("click", () => run(renew));
page.element("stored").addEventListener("click", () => run(continueAfterCodes));
page.element("print").addEventListener("click", () => print());
page.element("log-out").addEventListener("click", () => run(async () => {
  page.showSection((await logOut()) ? "done" : "still-logged-in");
}));
page.offerCopy("recovery-codes");
page.prefill(tenant, email);
if (challenge) run(setUp);
else showLogin();
