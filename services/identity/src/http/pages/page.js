// Shared by the pages: texts, parameters of the URL fragment, requests to the API, forms with errors at their fields.

import * as passkey from "./passkey.js";

// First: hides the notices of a page without running scripts. An error of these scripts that no code expects shows the second one again.
document.getElementById("loading")?.remove();
const incomplete = document.getElementById("incomplete");
incomplete.hidden = true;
incomplete.classList.remove("delayed");
const scripts = new URL(".", import.meta.url).href;
const showIncomplete = (source) => (incomplete.hidden &&= !String(source).includes(scripts));
addEventListener("error", ({ filename }) => showIncomplete(filename));
addEventListener("unhandledrejection", ({ reason }) => showIncomplete(reason?.stack));

// Longer than the service takes to respond, so that its own error arrives first.
const TIMEOUT = 20_000;
const api = new URL("../../..", import.meta.url);
const texts = JSON.parse(document.body.dataset.texts);
const status = document.getElementById("status");
// What follows the heading of a section in the title of the tab.
const product = document.title.slice(document.title.lastIndexOf(" · "));

// Returns a text of the page, with values in its placeholders.
export const text = (key, values = {}) =>
  Object.entries(values).reduce((content, [name, value]) => content.replace(`{${name}}`, () => value), texts[key]);
export const element = (id) => document.getElementById(id);

// Keeps values for this tab, so that a reload loses nothing. A browser that stores no data for this site keeps them until the
// page is left.
const memory = new Map();
const stored = (use, otherwise) => {
  try {
    return use(sessionStorage);
  } catch {
    return otherwise();
  }
};
export const keep = {
  get: (key) => stored((storage) => storage.getItem(key), () => memory.get(key)) ?? null,
  set: (key, value) => stored((storage) => storage.setItem(key, value), () => memory.set(key, value)),
  remove: (key) => stored((storage) => storage.removeItem(key), () => memory.delete(key)),
};

// The fragment is never sent to a server. It is removed from the address bar, and kept until `forget` or `finish`. Browsers can keep the
// opened address in their history.
const storage = `svc:${location.pathname}`;
const finished = `svc:done:${location.pathname}`;
export const forget = () => keep.remove(storage);
// A password in it is not used and not kept.
if (location.hash.length > 1) keep.set(storage, location.hash.slice(1).replace(/(^|&)(password|current)=[^&]*/g, ""));
// A new link replaces the result of the last one.
if (location.hash.length > 1) keep.remove(finished);
history.replaceState(null, "", location.pathname);
// A link to the page that is already open changes only the fragment.
addEventListener("hashchange", () => location.reload());
export const fragment = () => keep.get(storage) ?? "";
export const parameters = new URLSearchParams(fragment());

// Opens the page of a token.
export function openLink({ token, kind }) {
  const name = { iv: "accept-invite", pr: "reset-password" }[kind];
  const address = new URL(`${name}#token=${token}`, location.href);
  if (address.pathname === location.pathname) location.hash = address.hash;
  else location.assign(address);
}

// Replaces the fragment by a result, which is shown as long as the tab is open.
export function finish(result) {
  forget();
  keep.set(finished, JSON.stringify(result));
}

// Removes the result if the page is opened again, but not after a reload or on the way back. For pages that work without a link.
export function startAgain() {
  if (performance.getEntriesByType("navigation")[0]?.type === "navigate") keep.remove(finished);
}
export const result = () => JSON.parse(keep.get(finished));

// Fills the fields that the fragment names, except passwords, and focuses the first empty one.
export function prefill(...inputs) {
  for (const input of inputs.filter(({ type }) => type !== "password")) {
    input.value ||= parameters.get(input.id === "code" ? "user_code" : input.id) ?? "";
  }
  for (const { elements } of document.forms) if (elements.username) offerUserName(elements);
  inputs.find((input) => !input.value)?.focus();
  suggestPasskeys();
}

// A link to another page with the account filled in.
export function link(anchor, values) {
  anchor.href = `${anchor.pathname}#${new URLSearchParams(values)}`;
}

// The spelling of times is that of the person, for example British, in the language of the page.
const { lang } = document.documentElement;
// A browser can have tags that no locale has, such as en-US@posix.
const locale = navigator.languages.find((tag) => /^[a-z]{2}(-[A-Za-z0-9]{2,8})*$/.test(tag) && tag.split("-")[0] === lang) ?? lang;
export const time = (value, options = { dateStyle: "medium", timeStyle: "short" }) =>
  new Date(value).toLocaleString(locale, options);
// With the time zone, because a mail states the same time in UTC.
const ZONED = { year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short" };
export const zonedTime = (value) => time(value, ZONED);

// Shows values in the elements that name them.
export function fill(values) {
  for (const [name, value] of Object.entries(values)) {
    for (const target of document.querySelectorAll(`[data-value=${name}]`)) target.textContent = value;
  }
}

// Shows a text in an element. The values of its placeholders stand out, and their direction does not affect the text around them.
export function compose(target, key, values) {
  const parts = texts[key].split(/\{(\w+)\}/).map((part, index) => {
    if (index % 2 === 0) return part;
    const value = document.createElement("bdi");
    value.textContent = values[part];
    return value;
  });
  target.replaceChildren(...parts);
}

// Shows one section instead of the current one, and moves the focus to its heading, for keyboard users and screen readers.
export function showSection(id) {
  status.textContent = "";
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  const heading = element(id).querySelector("h1");
  // Without the places where a long word can break.
  document.title = heading.textContent.replace(/\u00ad/g, "") + product;
  if (heading.hasAttribute("tabindex")) heading.focus();
}

// Shows what failed instead of the current section, and one way to continue: a reload, or the element with the id.
export function showFailure(content, way = "retry") {
  element("failed").firstElementChild.textContent = text(way === "retry" ? "failed.later" : "failed.link");
  element("failure").textContent = content;
  for (const other of element("failed").children) if (other.dataset.way !== undefined) other.hidden = other.id !== way;
  showSection("failed");
}
element("retry").addEventListener("click", () => location.reload());

// An error that the page expects. Its message is for the person, in the language of the page.
export class Problem extends Error {
  constructor(code, content = text("error.other"), { challenge, methods, public_key } = {}) {
    super(texts[`problem.${code}`] ?? content);
    Object.assign(this, { code, challenge, methods, options: public_key });
  }
}

// Any other error is an error of the page itself, and is not presented as one of the network or the service.
export function message(error) {
  if (error instanceof Problem) return error.message;
  console.error(error);
  return text("error.page");
}

// The texts of requests with an unknown result, unless the task has its own.
const UNKNOWN = { PATCH: "error.unknown", DELETE: "error.unknown" };

function parsed(content) {
  try {
    return JSON.parse(content);
  } catch {
    return null;
  }
}

// When a person can try again, with the time that the service states.
function waitText(seconds) {
  if (!(seconds > 0)) return text("limited.later");
  if (seconds === 1) return text("limited.second");
  return seconds < 100 ? text("limited.seconds", { seconds }) : text("limited.minutes", { minutes: Math.ceil(seconds / 60) });
}

// The minimum of the installation is in the texts. An organization can require longer passwords.
export function requireLength(length) {
  const password = element("password");
  const replaced = (content) => content.replace(password.minLength, length);
  texts["problem.password_too_short"] = replaced(texts["problem.password_too_short"]);
  element("password-help").textContent = replaced(element("password-help").textContent);
  password.minLength = length;
}

// The problem of a response that is not the expected one. Only the service sends problem documents, proxies do not.
function problemOf({ status, headers }, document) {
  if (status === 429) return new Problem("rate_limited", waitText(Number(headers.get("retry-after"))));
  if (document?.code === "password_too_short") requireLength(Number(/\d+/.exec(document.detail)));
  if (document?.code) return new Problem(document.code, undefined, document);
  return status >= 500 ? new Problem("dependency_unavailable") : new Problem(null, text("error.unexpected"));
}

// Sends a request. Without a response of the service, it is possible that the service has processed it: the error then has the text
// with the key `unknown` too.
export async function send(method, path, { body, headers, keepalive, unknown = UNKNOWN[method] } = {}) {
  const json = body && { "content-type": "application/json" };
  const abortion = new AbortController();
  // Throws if the request is invalid, which is an error of the page itself.
  const request = new Request(new URL(path, api), {
    method,
    keepalive,
    signal: abortion.signal,
    headers: { ...json, ...headers },
    body: body && JSON.stringify(body),
  });
  // Without a network, no request arrives.
  const isSent = navigator.onLine;
  const timer = setTimeout(() => abortion.abort(), TIMEOUT);
  const failed = (problem) => {
    if (unknown && isSent) problem.message += ` ${text(unknown)}`;
    // The page logs out if any request has no result. Only a change can have been made.
    throw Object.assign(problem, { isUnknown: method !== "GET" && isSent, isPossible: Boolean(unknown) && isSent });
  };
  const unreachable = () => {
    const cause = navigator.onLine ? "error.unreachable" : "error.offline";
    failed(new Problem(null, text(abortion.signal.aborted ? "error.timeout" : cause)));
  };
  try {
    const response = await fetch(request).catch(unreachable);
    if (response.status === 204) return null;
    const document = parsed(await response.text().catch(unreachable));
    if (response.ok && document) return document;
    const problem = problemOf(response, document);
    // A proxy responds in place of the service, or the service after its time limit.
    if (response.status >= 500 && (!document?.code || document.code === "dependency_unavailable")) failed(problem);
    throw problem;
  } finally {
    clearTimeout(timer);
  }
}

export const post = (path, body, headers, unknown) => send("POST", path, { body, headers, unknown });

// The challenge of a login that needs a second factor, with the options of a passkey. It belongs to the account and the password in
// the form.
let challenge = null;
// The answer of a passkey, until it is sent: to the challenge or, without one, that of a login with a passkey alone.
let assertion = null;
export const hasAssertion = () => Boolean(assertion);
// The button for such a login. A passkey belongs to the address of the installation.
const passkeyLogin = element("passkey-login");
export const hasPasskeys = () =>
  Boolean(passkeyLogin) && passkey.isAvailable() && location.origin === document.body.dataset.origin;
// Shorter than the options of a login are valid.
const SUGGESTION_TIME = 240_000;
let isSuggesting = false;

// The field of the code is in the page only while there is a challenge: password managers do not expect it in other forms.
function setChallenge(value) {
  challenge = value;
  element("otp")?.closest(".field").remove();
  const template = element("otp-field");
  if (passkeyLogin) passkeyLogin.hidden = Boolean(value) || !hasPasskeys();
  const button = template?.closest("form").querySelector("button:not([type])");
  if (button) button.className = "primary";
  if (!value) return;
  passkey.cancel();
  template.after(template.content.cloneNode(true));
  const [otp, passkeyButton] = [element("otp"), element("use-passkey")];
  const isPasskeyPossible = Boolean(value.options) && passkey.isAvailable();
  element("otp-help").textContent = isPasskeyPossible ? text("passkey.required") : value.message;
  passkeyButton.hidden = !isPasskeyPossible;
  passkeyButton.addEventListener("click", usePasskeyAsFactor);
  if (value.methods.includes("totp")) return;
  // Without an app, the passkey is the usual way, and the field is for a recovery code.
  otp.labels[0].textContent = text("field.recovery_code");
  otp.autocomplete = "off";
  if (isPasskeyPossible) [passkeyButton.className, button.className] = ["primary", "secondary"];
}

// The fields that an assertion replaces.
const replacedFields = () => (challenge ? ["otp"] : ["tenant", "email", "password"]);

function submit(form, answer) {
  assertion = answer;
  form.dispatchEvent(new Event("submit", { cancelable: true }));
}

// Submits a form with an assertion in place of some of its fields.
async function usePasskey(form, input, get, unused) {
  clearErrors(form);
  validate(form, replacedFields());
  if (form.querySelector("[aria-invalid]")) return focusError(form);
  try {
    submit(form, await busy(get));
  } catch (error) {
    showError(input, error instanceof DOMException ? text(unused) : message(error));
    focusError(form);
    suggestPasskeys();
  }
}

const usePasskeyAsFactor = () =>
  usePasskey(element("otp").form, element("otp"), () => passkey.get(challenge.options), "passkey.none");

async function getPasskeyAlone(mediation) {
  const { public_key } = await post("auth/passkey/options");
  return passkey.get(public_key, mediation);
}

passkeyLogin?.addEventListener("click", () => {
  usePasskey(passkeyLogin.form, undefined, () => getPasskeyAlone(), "passkey.unused");
});

// Offers passkeys among the suggestions of the browser for the address, while the form is shown. Another request of the page ends the offer.
async function suggestPasskeys() {
  const isShown = () => hasPasskeys() && passkeyLogin.getClientRects().length > 0 && !challenge;
  if (isSuggesting || !isShown()) return;
  isSuggesting = true;
  let isExpired = false;
  const timer = setTimeout(() => {
    isExpired = true;
    passkey.cancel();
  }, SUGGESTION_TIME);
  try {
    if (!(await passkey.canSuggest())) return;
    element("email").autocomplete = "email webauthn";
    const answer = await getPasskeyAlone("conditional");
    if (isShown()) submit(passkeyLogin.form, answer);
  } catch {
    // The person has not asked for it, and logs in with the form.
  } finally {
    isSuggesting = false;
    clearTimeout(timer);
  }
  if (isExpired && document.hidden) addEventListener("visibilitychange", suggestPasskeys, { once: true });
  else if (isExpired) suggestPasskeys();
}

const purposeOf = (input) => input.getAttribute("autocomplete") ?? "";
// Whether a field names the account or has its current password.
export const isOfLogin = (input) =>
  ["tenant", "email", "username"].includes(input.id) || purposeOf(input) === "current-password";

element("otp-field")?.closest("form").addEventListener("input", ({ target }) => {
  if (!challenge || !isOfLogin(target)) return;
  setChallenge(null);
  suggestPasskeys();
});

// Logs in with the fields of a form. With a second factor, a login has two requests: the first submission of the form sends the
// password and shows the field of the code, the next one sends the code. A login with a passkey alone fills in the account, without the
// address if the response does not contain it.
export async function logIn(paths, { tenant, email, password }) {
  const headers = { "x-tenant-id": tenant.value };
  const code = element("otp")?.value ?? "";
  const kind = /^[\d\s]*$/.test(code) ? "code" : "recovery_code";
  const sent = assertion ? { assertion } : { [kind]: code };
  const isPasskeyAlone = Boolean(assertion) && !challenge;
  assertion = null;
  if (isPasskeyAlone) return logInWithPasskey(paths.passkey, sent, { tenant, email });
  const request = challenge
    ? post(paths.secondFactor, { challenge: challenge.challenge, ...sent }, headers)
    : post(paths.password, { email: email.value, password: password.value }, headers);
  try {
    const session = await request;
    setChallenge(null);
    passkey.cancel();
    return session;
  } catch (error) {
    if (error.code === "second_factor_setup_required") openSetup(error.challenge, { tenant, email });
    else if (error.challenge) setChallenge(error);
    if (error.code === "second_factor_failed") element("otp").value = "";
    if (error.code === "second_factor_failed" && sent.assertion) error.message = text("passkey.failed");
    if (error.code !== "token_invalid") throw error;
    setChallenge(null);
    throw new Problem(null, text("error.otp_expired"));
  }
}

async function logInWithPasskey(path, body, { tenant, email }) {
  try {
    const session = await post(path, body);
    [tenant.value, email.value] = [session.tenant_id, session.email ?? ""];
    return session;
  } catch (error) {
    const key = { login_failed: "passkey.rejected", token_invalid: "passkey.expired" }[error.code];
    throw key ? new Problem(null, text(key)) : error;
  }
}

// Opens the page that sets up the second factor, which the account of a login must have. It leads back to this page.
function openSetup(challenge, { tenant, email }) {
  const code = element("code")?.value;
  const values = { tenant: tenant.value, email: email.value, next: location.pathname.split("/").pop() };
  const parameters = new URLSearchParams({ ...values, ...(code && { user_code: code }), setup: challenge });
  location.assign(new URL(`factors#${parameters}`, location.href));
}

// The field of a problem with the code of a second factor.
export const codeOf = (code) => (code?.startsWith("second_factor_") ? element("otp") : undefined);

// Shows an error once: at its field, or below the form.
export function showError(input, content) {
  const target = element(`${input?.id ?? "form"}-error`);
  target.textContent = content;
  target.hidden = false;
  input?.setAttribute("aria-invalid", "true");
}

export function clearErrors(form) {
  for (const target of form.querySelectorAll(".error")) {
    target.hidden = true;
    // Descriptions of fields include hidden elements.
    target.textContent = "";
  }
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

// Password managers keep one entry for a user name of a site, so the pages offer `address (organization)` as the user name.
export const userName = ({ tenant_id, email }) => `${email} (${tenant_id})`;

// Fills the fields of a login from a user name, which a password manager can also write into the field of the address.
function splitUserName({ tenant, email, username }, source) {
  const [, address, organization] = /^(\S+@\S+) \(([a-z0-9-]+)\)$/.exec(source.value.trim()) ?? [];
  if (organization) [tenant.value, email.value] = [organization, address];
  else if (source === username && source.value.includes("@")) email.value = source.value;
  offerUserName({ tenant, email, username });
}

function offerUserName({ tenant, email, username }) {
  const [tenant_id, address] = [tenant.value.trim().toLowerCase(), email.value.trim()];
  username.value = tenant_id && address ? userName({ tenant_id, email: address }) : "";
}

for (const { elements } of document.forms) {
  if (!elements.username) continue;
  elements.tenant.addEventListener("input", () => offerUserName(elements));
  for (const source of [elements.email, elements.username]) {
    for (const type of ["input", "change"]) source.addEventListener(type, () => splitUserName(elements, source));
  }
}

// Shows the errors of the fields, except of those that are not needed.
function validate(form, needless) {
  if (form.elements.username) splitUserName(form.elements, form.elements.email);
  for (const input of form.querySelectorAll("input:not([readonly])")) {
    if (!purposeOf(input).endsWith("password")) input.value = input.value.trim();
    if (input.id === "tenant") input.value = input.value.toLowerCase();
    if (input.validity.valid || needless.includes(input.id)) continue;
    showError(input, text(input.validity.valueMissing ? "error.required" : input.dataset.invalid));
  }
}

// Runs an action with all visible buttons disabled, so that a section that the action shows can be used at once. Rethrows its
// error.
export async function busy(action) {
  const buttons = [...document.querySelectorAll("button:enabled")].filter((button) => button.getClientRects().length > 0);
  buttons.forEach((button) => (button.disabled = true));
  status.textContent = text("wait");
  status.className = "waiting";
  try {
    return await action();
  } finally {
    buttons.forEach((button) => (button.disabled = false));
    status.textContent = "";
    status.className = "";
  }
}

// Moves the focus to the first error of a form.
export function focusError(form) {
  form.querySelector("[aria-invalid], #form-error:not([hidden])")?.focus();
}

// Shows a form, validates it when it is submitted, and runs the action, which can return the text that announces its result. `fieldOf`
// returns the field of a problem code, if it has one.
export function onSubmit(form, { check = () => {}, action, fieldOf = () => undefined }) {
  form.hidden = false;
  if (passkeyLogin?.form === form) passkeyLogin.hidden = !hasPasskeys();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearErrors(form);
    const isPasskey = Boolean(assertion);
    validate(form, isPasskey ? replacedFields() : []);
    check();
    if (!form.querySelector("[aria-invalid]")) {
      await busy(action).then((result) => (status.textContent = result ?? ""), (error) => {
        // The password is right, and the form has the field for the next step.
        if (error.code === "second_factor_required") (form.querySelector("#use-passkey.primary") ?? element("otp")).focus();
        else showError(fieldOf(error.code), message(error));
      });
    }
    assertion = null;
    focusError(form);
    // Not again after a passkey: a program that answers by itself would repeat a failed login without end.
    if (!isPasskey) suggestPasskeys();
  });
}

// Requires that the new password is typed twice.
export function checkAgain() {
  const [password, again] = [element("password"), element("again")];
  if (again.value && again.value !== password.value) showError(again, text("error.again"));
}

// The field of a new password for a problem with it.
export const newPasswordOf = (code) =>
  code?.startsWith("password_") || code === "body_too_large" ? element("password") : undefined;

// Shows a button that copies the text of an element. Only secure contexts have a clipboard.
export function offerCopy(id) {
  if (!navigator.clipboard) return;
  const copy = element("copy");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const write = navigator.clipboard.writeText(element(id).textContent);
    copy.textContent = await write.then(() => text("copied"), () => text("copy.failed"));
  });
}

// Every link to another page has the account of the form filled in.
for (const type of ["click", "auxclick", "contextmenu"]) {
  document.addEventListener(type, ({ target }) => {
    const anchor = target.closest("a[href^='/api/v1/pages/']");
    const [tenant, email] = ["tenant", "email"].map(element);
    if (anchor && tenant && (tenant.value || email.value)) link(anchor, { tenant: tenant.value, email: email.value });
  });
}

// The page in another language has the same link and the same entries, except passwords and codes of a second factor.
for (const anchor of document.querySelectorAll("footer a[hreflang]")) {
  anchor.addEventListener("click", () => {
    if (result()) return;
    const inputs = ["tenant", "email", "code"].map(element).filter((input) => input && !input.readOnly);
    const values = new URLSearchParams(fragment());
    for (const { id, value } of inputs) values.set(id === "code" ? "user_code" : id, value);
    anchor.hash = inputs.length ? values : fragment();
  });
}

for (const button of document.querySelectorAll(".reveal")) {
  button.addEventListener("click", () => {
    const inputs = button.getAttribute("aria-controls").split(" ").map(element);
    const isHidden = inputs[0].type === "password";
    for (const input of inputs) input.type = isHidden ? "text" : "password";
    button.textContent = text(isHidden ? "password.hide" : "password.show");
    button.setAttribute("aria-label", text(isHidden ? "password.hide.label" : "password.show.label"));
  });
}
