// Shared by the pages: texts, parameters of the URL fragment, requests to the API, forms with errors at their fields.

// First: hides the notice of a page without running scripts. An error of these scripts that no code expects shows it again.
const incomplete = document.getElementById("incomplete");
incomplete.hidden = true;
incomplete.classList.remove("delayed");
const scripts = new URL(".", import.meta.url).href;
const showIncomplete = (source) => (incomplete.hidden &&= !String(source).includes(scripts));
addEventListener("error", ({ filename }) => showIncomplete(filename));
addEventListener("unhandledrejection", ({ reason }) => showIncomplete(reason?.stack));

const api = new URL("../../..", import.meta.url);
const texts = JSON.parse(document.body.dataset.texts);
const status = document.getElementById("status");

export const text = (key) => texts[key];
export const element = (id) => document.getElementById(id);

// The fragment is never sent to a server. It is removed from the address bar and the history, and kept for this tab until
// `forget`, so that a reload loses nothing.
const storage = `svc:${location.pathname}`;
if (location.hash.length > 1) sessionStorage.setItem(storage, location.hash.slice(1));
history.replaceState(null, "", location.pathname);
// A link to the page that is already open changes only the fragment.
addEventListener("hashchange", () => location.reload());
export const parameters = new URLSearchParams(sessionStorage.getItem(storage) ?? "");
export const forget = () => sessionStorage.removeItem(storage);

// Fills the fields that the fragment names and focuses the first empty one.
export function prefill(...inputs) {
  for (const input of inputs) input.value ||= parameters.get(input.id === "code" ? "user_code" : input.id) ?? "";
  inputs.find((input) => !input.value)?.focus();
}

// A link to another page with the account filled in.
export function link(anchor, values) {
  anchor.href = `${anchor.pathname}#${new URLSearchParams(values)}`;
}

export const time = (value) =>
  new Date(value).toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });

// Shows values in the elements that name them.
export function fill(values) {
  for (const [name, value] of Object.entries(values)) {
    for (const target of document.querySelectorAll(`[data-value=${name}]`)) target.textContent = value;
  }
}

// Shows one section instead of the current one, and moves the focus to its heading, for keyboard users and screen readers.
export function showSection(id) {
  status.textContent = "";
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== id;
  element(id).querySelector("h1[tabindex]")?.focus();
}

// Shows what failed instead of the current section. If the person can retry, a reload can succeed.
export function showFailure(content, canRetry) {
  element("failed").firstElementChild.textContent = text(canRetry ? "failed.later" : "failed.link");
  element("failure").textContent = content;
  element("retry").hidden = !canRetry;
  element("remedy").hidden = canRetry;
  showSection("failed");
}
element("retry").addEventListener("click", () => location.reload());

// An error that the page expects. Its message is for the person, in the language of the page.
export class Problem extends Error {
  constructor(code, content = text("error.other")) {
    super(texts[`problem.${code}`] ?? content);
    this.code = code;
  }
}

// Any other error is an error of the page itself, and is not presented as one of the network or the service.
export function message(error) {
  if (error instanceof Problem) return error.message;
  console.error(error);
  return text("error.page");
}

function parsed(content) {
  try {
    return JSON.parse(content);
  } catch {
    return null;
  }
}

// The problem of a response that is not the expected one. Only the service sends problem documents, proxies do not.
function problemOf(status, document) {
  if (document?.code) return new Problem(document.code);
  if (status === 429) return new Problem("rate_limited");
  return status >= 500 ? new Problem("dependency_unavailable") : new Problem(null, text("error.unexpected"));
}

export async function send(method, path, { body, headers, keepalive } = {}) {
  const json = body && { "content-type": "application/json" };
  // Throws if the request is invalid, which is an error of the page itself.
  const request = new Request(new URL(path, api), {
    method,
    keepalive,
    headers: { ...json, ...headers },
    body: body && JSON.stringify(body),
  });
  const unreachable = () => {
    throw new Problem(null, text("error.unreachable"));
  };
  const response = await fetch(request).catch(unreachable);
  if (response.status === 204) return null;
  const document = parsed(await response.text().catch(unreachable));
  if (response.ok && document) return document;
  throw problemOf(response.status, document);
}

export const post = (path, body, headers) => send("POST", path, { body, headers });

// Shows an error once: at its field, or below the form.
export function showError(input, content) {
  const target = element(`${input?.id ?? "form"}-error`);
  target.textContent = content;
  target.hidden = false;
  input?.setAttribute("aria-invalid", "true");
}

function clearErrors(form) {
  for (const target of form.querySelectorAll(".error")) target.hidden = true;
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

function validate(form) {
  for (const input of form.querySelectorAll("input:not([readonly])")) {
    if (["tenant", "email"].includes(input.id)) input.value = input.value.trim();
    if (input.id === "tenant") input.value = input.value.toLowerCase();
    if (input.validity.valid) continue;
    showError(input, text(input.validity.valueMissing ? "error.required" : input.dataset.invalid));
  }
}

// Runs an action with all visible buttons disabled, so that a section that the action shows can be used at once. Rethrows its
// error.
export async function busy(action) {
  const buttons = [...document.querySelectorAll("button:enabled")].filter((button) => button.getClientRects().length > 0);
  buttons.forEach((button) => (button.disabled = true));
  status.textContent = text("wait");
  try {
    return await action();
  } finally {
    buttons.forEach((button) => (button.disabled = false));
    status.textContent = "";
  }
}

// Moves the focus to the first error of a form.
export function focusError(form) {
  form.querySelector("[aria-invalid], #form-error:not([hidden])")?.focus();
}

// Shows a form, validates it when it is submitted, and runs the action. `fieldOf` returns the field of a problem code, if it has one.
export function onSubmit(form, { check = () => {}, action, fieldOf = () => undefined }) {
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearErrors(form);
    validate(form);
    check();
    if (!form.querySelector("[aria-invalid]")) {
      await busy(action).catch((error) => showError(fieldOf(error.code), message(error)));
    }
    focusError(form);
  });
}

// The link of a login form to the page that requests a reset, with the account filled in.
element("reset-link")?.addEventListener("click", ({ currentTarget }) => {
  link(currentTarget, { tenant: element("tenant").value, email: element("email").value });
});

for (const button of document.querySelectorAll(".reveal")) {
  button.addEventListener("click", () => {
    const inputs = button.getAttribute("aria-controls").split(" ").map(element);
    const isHidden = inputs[0].type === "password";
    for (const input of inputs) input.type = isHidden ? "text" : "password";
    button.textContent = text(isHidden ? "password.hide" : "password.show");
    button.setAttribute("aria-label", text(isHidden ? "password.hide.label" : "password.show.label"));
  });
}
