// Sets up, renames and removes the second factors of a user. The page keeps its login in its own memory only. If a login must set up a
// factor, its form opens this page with the challenge, which permits the set-up.

import * as page from "./page.js";
import * as passkey from "./passkey.js";
import { adopt, bearer, logIn, logOut } from "./login.js";

const [loginForm, passkeyForm, setupForm, renameForm] = document.forms;
const { tenant, email, password } = loginForm.elements;
const firstCode = page.element("first-code");
const passkeyName = page.element("passkey-name");
const newName = page.element("new-name");
const rows = page.element("factors");
const footer = document.querySelector("footer");
// Whether the login that must set up a factor can set up a passkey in place of an app.
const canChoose = page.hasPasskeys() && passkey.canBeCreated();

// The challenge of a login that waits for the set-up.
let challenge = page.parameters.get("setup");
// The new passkey that this login has sent. If no response arrives, only the same request gets one.
let sent = null;
// Whether the set-up of a factor got no response: its recovery codes are possibly lost.
let isUnknown = false;
// The factor that the person wants to rename or remove.
let chosen;

const account = () => ({ tenant: tenant.value, email: email.value });
const headers = () => ({ "x-tenant-id": tenant.value });
// What the login shows after an error that means that the last one is too old.
const EXPIRED = {
  token_invalid: "error.otp_expired",
  unauthenticated: "factors.expired",
  credential_invalid: "factors.expired",
  reauthentication_required: "factors.expired",
};
const expiredText = (code) => page.text(isUnknown ? "factors.unknown" : EXPIRED[code]);

function showLogin(notice) {
  challenge = null;
  isUnknown = false;
  logOut();
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
  const name = factor.name ?? page.text("factors.app");
  item.querySelector("bdi").textContent = name;
  item.querySelector("[data-field=times]").textContent = times;
  const [remove, rename] = item.querySelectorAll("button");
  for (const [button, section] of [[remove, "removal"], [rename, "renaming"]]) {
    button.setAttribute("aria-label", `${button.textContent}: ${name}`);
    button.addEventListener("click", () => {
      chosen = factor.factor_id;
      newName.value = factor.name ?? "";
      page.compose(page.element("removal-name"), "factors.removal", { name });
      page.clearErrors(renameForm);
      page.element("list-error").hidden = true;
      page.showSection(section);
    });
  }
  if (!factor.name) rename.remove();
  return item;
}

// A login that must set up a factor shows the same section, without a session.
function showList() {
  for (const notice of document.querySelectorAll(".required")) notice.hidden = !challenge;
  page.element("log-out").hidden = Boolean(challenge);
  page.element("leave").hidden = !challenge;
  page.clearErrors(passkeyForm);
  page.element("list-error").hidden = true;
  page.compose(page.element("list-account"), "done.account", account());
  page.showSection("list");
}

async function list() {
  const { factors, recovery_codes: count } = await page.send("GET", "auth/factors", { headers: bearer() });
  rows.replaceChildren(...factors.map(row));
  page.element("none").hidden = factors.length > 0;
  page.element("add").hidden = factors.some(({ type }) => type === "totp");
  page.element("recovery").hidden = factors.length === 0;
  page.element("left").textContent = page.text("factors.left", { count });
  showList();
}

// Shows which factors the login can set up.
function choose() {
  if (!canChoose) return setUp();
  page.element("add").hidden = false;
  showList();
}

async function setUp() {
  const app = challenge
    ? await page.post("auth/second-factor/totp", { challenge }, headers())
    : await page.post("auth/factors/totp", undefined, bearer());
  page.element("setup").querySelector(".required").hidden = !challenge;
  page.element("qr").src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(app.qr_code)}`;
  page.element("secret").textContent = app.secret.replace(/.{4}(?=.)/g, "$& ");
  page.element("app-link").href = app.uri;
  // A browser without an app for such a link would leave the page. Telephones have one.
  page.element("app-link").parentElement.hidden = !matchMedia("(pointer: coarse)").matches;
  firstCode.value = "";
  page.clearErrors(setupForm);
  page.showSection("setup");
}

// Completes the login that must set up a factor. Returns the recovery codes.
async function completeLogin(proof) {
  const session = await page.post("auth/second-factor", { challenge, ...proof }, headers(), "factors.unknown");
  adopt(session.session_id);
  challenge = null;
  page.forget();
  return session.recovery_codes;
}

// Returns the recovery codes.
async function confirmApp() {
  const code = firstCode.value;
  if (challenge) return completeLogin({ code });
  const { recovery_codes: codes } = await page.post("auth/factors/totp/confirm", { code }, bearer(), "factors.unknown");
  // With the first factor, further changes need a login with it.
  if (codes.length) await logOut();
  return codes;
}

// Creates a passkey on this device or another one. Returns what registers it.
async function createPasskey({ public_key }) {
  const credential = await passkey.create(public_key).catch((error) => {
    throw error instanceof DOMException ? new page.Problem(null, page.text("factors.passkey.none")) : error;
  });
  return { name: passkeyName.value, credential };
}

// Registers a new passkey, which completes the login that must set up a factor.
async function completeLoginWithPasskey() {
  sent ??= await createPasskey(await page.post("auth/second-factor/passkey", { challenge }, headers()));
  try {
    showCodes(await completeLogin(sent));
  } catch (error) {
    if (error.code === "validation_failed") sent = null;
    throw error;
  }
  passkeyName.value = "";
}

async function addPasskey() {
  if (challenge) return completeLoginWithPasskey();
  const options = await page.post("auth/factors/passkeys/options", undefined, bearer());
  const body = { challenge: options.challenge, ...(await createPasskey(options)) };
  const { recovery_codes: codes } = await page.post("auth/factors/passkeys", body, bearer(), "factors.unknown");
  passkeyName.value = "";
  if (!codes) return list();
  // Further changes need a login with the factor.
  await logOut();
  showCodes(codes);
}

async function rename() {
  await page.send("PATCH", `auth/factors/${chosen}`, { body: { name: newName.value }, headers: bearer() });
  await list();
  return page.text("factors.renamed");
}

async function confirm() {
  const codes = await confirmApp().catch((error) => {
    const isWrong = ["validation_failed", "second_factor_failed"].includes(error.code);
    throw isWrong ? new page.Problem(null, page.text("factors.wrong_code")) : error;
  });
  page.forget();
  if (codes.length) return showCodes(codes);
  await list();
  page.element("left").prepend(`${page.text("factors.kept")} `);
}

// The codes are shown only once: the browser asks before it leaves them, and the page has no links.
function warn(event) {
  event.preventDefault();
  event.returnValue = true;
}

function showCodes(codes) {
  addEventListener("beforeunload", warn);
  footer.hidden = true;
  page.element("recovery-codes").textContent = codes.join("\n");
  page.element("copy").textContent = page.text("copy");
  page.compose(page.element("codes-account"), "done.account", account());
  page.showSection("codes");
}

// Where the person wanted to log in, or the list.
async function continueAfterCodes() {
  removeEventListener("beforeunload", warn);
  footer.hidden = false;
  page.element("recovery-codes").textContent = "";
  const next = ["sessions", "device", "change-password"].find((name) => name === page.parameters.get("next"));
  if (next) {
    const code = page.parameters.get("user_code");
    const values = new URLSearchParams({ ...account(), ...(code && { user_code: code }) });
    return location.assign(new URL(`${next}#${values}`, location.href));
  }
  if (bearer()) return list();
  page.showSection("ready");
}

async function remove() {
  await page.send("DELETE", `auth/factors/${chosen}`, { headers: bearer() });
  await list();
  return page.text("factors.removed");
}

async function renew() {
  const { recovery_codes: codes } = await page.post("auth/factors/recovery-codes", undefined, bearer(), "factors.codes_unknown");
  showCodes(codes);
}

// Returns the action of a form, which shows the login again if the last one is too old for it.
const inTime = (action) => async () => {
  try {
    return await action();
  } catch (error) {
    if (error.code in EXPIRED) return showLogin(expiredText(error.code));
    isUnknown ||= Boolean(error.isPossible) && action !== rename;
    throw error;
  }
};

// Runs the action of a button in the same way.
async function run(action) {
  page.element("list-error").hidden = true;
  try {
    page.element("status").textContent = (await page.busy(action)) ?? "";
  } catch (error) {
    if (error.code in EXPIRED) return showLogin(expiredText(error.code));
    if (!bearer() && !(challenge && canChoose)) return page.showFailure(page.message(error));
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
  if (canChoose) return choose();
  showLogin();
}

page.onSubmit(loginForm, { action: open, fieldOf: (code) => (code === "login_failed" ? password : page.codeOf(code)) });
if (passkey.canBeCreated()) page.onSubmit(passkeyForm, { action: inTime(addPasskey), fieldOf: () => passkeyName });
page.onSubmit(setupForm, { action: inTime(confirm), fieldOf: () => firstCode });
page.onSubmit(renameForm, { action: inTime(rename), fieldOf: () => newName });
page.element("add").addEventListener("click", () => run(setUp));
page.element("cancel").addEventListener("click", () => run(cancel));
page.element("remove").addEventListener("click", () => run(remove));
for (const id of ["keep", "keep-name"]) page.element(id).addEventListener("click", () => page.showSection("list"));
page.element("leave").addEventListener("click", () => showLogin());
page.element("renew").addEventListener("click", () => run(renew));
page.element("stored").addEventListener("click", () => run(continueAfterCodes));
page.element("print").addEventListener("click", () => print());
page.element("log-out").addEventListener("click", () => run(async () => {
  page.showSection((await logOut()) ? "done" : "still-logged-in");
}));
page.offerCopy("recovery-codes");
page.prefill(tenant, email);
if (challenge) run(choose);
else showLogin();
