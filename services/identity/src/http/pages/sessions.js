// Lists and revokes the sessions of the user. The session of this page is in a cookie that scripts cannot read.

import * as page from "./page.js";

const form = document.querySelector("form");
const { tenant, email, password } = form.elements;
const rows = page.element("sessions");
// Names the account on the page. It is not a credential.
const STORAGE = "svc:account";

// How many other logins the list shows at first.
const SHOWN = 10;

// The id of the session of this page.
let current;

// Whether the page has logged in and not yet used the cookie.
let isFresh = false;

const account = () => JSON.parse(page.keep.get(STORAGE));
const headers = () => ({ "x-user-id": account().user_id });
const isExpired = (error) => ["unauthenticated", "credential_invalid"].includes(error.code);

function showLogin(notice) {
  page.keep.remove(STORAGE);
  page.element("notice").textContent = notice ?? "";
  page.element("notice").hidden = !notice;
  page.showSection("task");
  page.prefill(tenant, email, password);
}

// Parts of user agents, with the name of the product if it is another one. Most agents also contain parts of later lines. Chrome, Firefox
// and Opera have other parts on iOS.
const BROWSERS = [
  ["Edg", "Edge"], ["OPR", "Opera"], ["OPiOS", "Opera"], ["OPT/", "Opera"], ["SamsungBrowser", "Samsung Internet"],
  ["FxiOS", "Firefox"], ["Firefox"], ["CriOS", "Chrome"], ["Chrome"], ["Safari"],
];
const SYSTEMS = [
  ["Windows"], ["Android"], ["iPhone"], ["iPad"], ["CrOS", "ChromeOS"], ["Mac OS X", "macOS"], ["Linux"],
];

// The name of an approved device, or a short name of a browser. Other clients name themselves briefly.
function clientName({ client_name: approved, user_agent: agent }) {
  if (approved) return approved;
  if (!agent) return page.text("unknown");
  if (!agent.startsWith("Mozilla/")) return agent;
  const first = (names) => names.find(([part]) => agent.includes(part))?.slice(-1)[0];
  const browser = first(BROWSERS);
  const system = first(SYSTEMS);
  return [browser, system].filter(Boolean).join(", ") || agent;
}

const ICONS = {
  telephone: "M8 2h8a2 2 0 0 1 2 2v16a2 2 0 0 1-2 2H8a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2zm3 17h2",
  browser: "M4 4h16v12H4zM2 20h20M10 16v4m4-4v4",
  program: "M3 4h18v16H3zM7 9l3 3-3 3m5 0h5",
};

function iconOf({ user_agent: agent }) {
  if (!agent?.startsWith("Mozilla/")) return ICONS.program;
  return /Android|iPhone|iPad/.test(agent) ? ICONS.telephone : ICONS.browser;
}

// The method of the login, then the second factor or the passkey in place of a password.
function methodOf({ method, amr }) {
  const isPasskey = amr.includes("hwk") || amr.includes("swk");
  const isAlone = isPasskey && method === "password" && !amr.includes("pwd");
  const second = amr.includes("otp") ? "app" : isPasskey ? "passkey" : amr.includes("mfa") && "recovery_code";
  return [!isAlone && method, second].filter(Boolean).map((name) => page.text(`sessions.method.${name}`)).join(" + ");
}

const addressOf = ({ ip }) => ip ?? page.text("unknown");

// One row for the sessions of a client: they differ in their times only.
function row(sessions) {
  const item = page.element("session").content.cloneNode(true).firstElementChild;
  const show = (name, value) => (item.querySelector(`[data-field=${name}]`).textContent = value);
  const [first] = sessions;
  const name = clientName(first);
  const used = page.time(sessions.map((session) => session.last_seen_at).sort().pop());
  item.querySelector("bdi").textContent = name;
  item.querySelector("path").setAttribute("d", iconOf(first));
  show("count", sessions.length > 1 ? page.text("sessions.count", { count: sessions.length }) : "");
  show("origin", `${methodOf(first)} · ${addressOf(first)}`);
  show("times", page.text("sessions.times", { used, created: page.time(first.created_at) }));
  const button = item.querySelector("button");
  button.setAttribute("aria-label", `${button.textContent}: ${name}, ${addressOf(first)}, ${page.time(first.created_at)}`);
  button.addEventListener("click", () => run(() => revoke(sessions, item), page.text("sessions.revoked", { name })));
  return item;
}

function groups(sessions) {
  const byClient = new Map();
  for (const session of sessions) {
    const client = JSON.stringify([session.client_name, session.user_agent, methodOf(session), session.ip]);
    byClient.set(client, [...(byClient.get(client) ?? []), session]);
  }
  return [...byClient.values()];
}

async function list() {
  const { items } = await page.send("GET", "auth/sessions", { headers: headers() });
  const own = items.find((session) => session.current);
  if (!own) throw new page.Problem("not_found");
  isFresh = false;
  current = own.id;
  const here = row([own]);
  here.querySelector("button").remove();
  page.element("here").replaceChildren(here);
  rows.replaceChildren(...groups(items.filter((session) => !session.current)).map(row));
  [...rows.children].slice(SHOWN).forEach((item) => (item.hidden = true));
  showOthers();
}

function showOthers() {
  page.element("only").hidden = rows.children.length > 0;
  page.element("revoke-others").hidden = rows.children.length < 2;
  page.element("show-all").textContent = page.text("sessions.show_all", { count: rows.children.length });
  page.element("show-all").hidden = ![...rows.children].some((item) => item.hidden);
}

// Shows the other rows, and continues with the first of them.
function showAll() {
  const more = [...rows.children].filter((item) => item.hidden);
  more.forEach((item) => (item.hidden = false));
  showOthers();
  more[0].querySelector("button").focus();
}

// Revokes a session. If it is not found, it is deleted, or another account has logged in: its cookie replaces the one of this page.
// The list fails in the second case.
async function remove(id) {
  try {
    await page.send("DELETE", `auth/sessions/${id}`);
  } catch (error) {
    if (error.code !== "not_found") throw error;
    await list();
  }
}

async function revoke(sessions, item) {
  for (const { id } of sessions) await remove(id);
  item.remove();
  showOthers();
  page.showSection("list");
}

async function revokeOthers() {
  await page.send("DELETE", "auth/sessions?keep_current=true", { headers: headers() });
  rows.replaceChildren();
  showOthers();
  page.showSection("list");
}

async function logOut() {
  const id = current;
  await remove(id);
  // The same person has logged in again in another tab: the cookie is that of the new session.
  if (current !== id) await remove(current);
  page.keep.remove(STORAGE);
  page.showSection("done");
}

// Why the service received no valid cookie: the page is open at an address that it does not accept, the browser has not kept the
// cookie of the login, or the session is expired.
function expiredText() {
  const { origin } = document.body.dataset;
  if (location.origin !== origin) return page.text("sessions.wrong_address", { origin });
  return page.text(isFresh ? "sessions.no_cookie" : "sessions.expired");
}

// Runs an action of the list and announces its result. If the session of the page is expired or of another account, shows the
// login again.
async function run(action, result = "") {
  page.element("list-error").hidden = true;
  try {
    await page.busy(action);
    page.element("status").textContent = result;
  } catch (error) {
    if (isExpired(error)) return showLogin(expiredText());
    if (error.code === "not_found") return showLogin(page.text("sessions.other_account"));
    if (page.element("list").hidden) return page.showFailure(page.message(error));
    page.element("list-error").textContent = page.message(error);
    page.element("list-error").hidden = false;
    page.element("list-error").focus();
  }
}

async function open() {
  page.compose(page.element("list-account"), "done.account", account());
  [tenant.value, email.value] = [account().tenant, account().email];
  await run(async () => {
    await list();
    page.showSection("list");
  });
}

async function logIn() {
  const paths = {
    password: "pages/sessions/login", secondFactor: "pages/sessions/second-factor", passkey: "pages/sessions/passkey",
  };
  const { user_id, tenant_id } = await page.logIn(paths, { tenant, email, password });
  page.keep.set(STORAGE, JSON.stringify({ user_id, tenant: tenant_id, email: email.value }));
  page.forget();
  password.value = "";
  isFresh = true;
  await open();
}

page.onSubmit(form, { action: logIn, fieldOf: (code) => (code === "login_failed" ? password : page.codeOf(code)) });
page.element("log-out").addEventListener("click", () => run(logOut));
page.element("show-all").addEventListener("click", showAll);
page.element("revoke-others").addEventListener("click", () => run(revokeOthers, page.text("sessions.others_revoked")));
if (account()) open();
else showLogin();
