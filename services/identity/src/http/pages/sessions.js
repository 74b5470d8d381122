// Lists and revokes the sessions of the user. The session of this page is in a cookie that scripts cannot read.

import * as page from "./page.js";

const form = document.querySelector("form");
const { tenant, email, password } = form.elements;
const rows = page.element("sessions");
// Names the account on the page. It is not a credential.
const STORAGE = "svc:account";

// The id of the session of this page.
let current;

const account = () => JSON.parse(sessionStorage.getItem(STORAGE) ?? "null");
const headers = () => ({ "x-user-id": account().user_id });
const isExpired = (error) => ["unauthenticated", "credential_invalid"].includes(error.code);

function showLogin(notice) {
  if (account()) [tenant.value, email.value] = [account().tenant, account().email];
  sessionStorage.removeItem(STORAGE);
  page.element("notice").textContent = notice ?? "";
  page.element("notice").hidden = !notice;
  page.showSection("task");
  page.prefill(tenant, email, password);
}

// The name of an approved device, or a short name of a browser. Other clients name themselves briefly.
function clientName({ client_name: approved, user_agent: agent }) {
  if (approved) return approved;
  if (!agent) return page.text("unknown");
  if (!agent.startsWith("Mozilla/")) return agent;
  const first = (names) => names.find(([part]) => agent.includes(part))?.slice(-1)[0];
  const browser = first([["Edg", "Edge"], ["OPR", "Opera"], ["Firefox"], ["Chrome"], ["Safari"]]);
  const system = first([["Windows"], ["Android"], ["iPhone"], ["iPad"], ["Mac OS X", "macOS"], ["Linux"]]);
  return [browser, system].filter(Boolean).join(", ") || agent;
}

function row(session) {
  const item = page.element("session").content.cloneNode(true).firstElementChild;
  const show = (name, value) => (item.querySelector(`[data-field=${name}]`).textContent = value);
  const agent = clientName(session);
  item.querySelector("bdi").textContent = agent;
  show("method", page.text(`sessions.method.${session.method}`));
  show("ip", session.ip ?? page.text("unknown"));
  show("created_at", page.time(session.created_at));
  show("last_seen_at", page.time(session.last_seen_at));
  const button = item.querySelector("button");
  button.setAttribute("aria-label", `${button.textContent}: ${agent}, ${page.time(session.created_at)}`);
  button.addEventListener("click", () => run(() => revoke(session, item), page.text("sessions.revoked")));
  return item;
}

async function list() {
  const { items } = await page.send("GET", "auth/sessions", { headers: headers() });
  current = items.find((session) => session.current)?.id;
  if (!current) throw new page.Problem("not_found");
  const others = items.filter((session) => !session.current);
  rows.replaceChildren(...others.map(row));
  page.element("only").hidden = others.length > 0;
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

async function revoke(session, item) {
  await remove(session.id);
  item.remove();
  page.element("only").hidden = rows.children.length > 0;
  page.showSection("list");
}

async function logOut() {
  const id = current;
  await remove(id);
  // The same person has logged in again in another tab: the cookie is that of the new session.
  if (current !== id) await remove(current);
  sessionStorage.removeItem(STORAGE);
  page.showSection("done");
}

// Runs an action of the list and announces its result. If the session of the page is expired or of another account, shows the
// login again.
async function run(action, result = "") {
  page.element("list-error").hidden = true;
  try {
    await page.busy(action);
    page.element("status").textContent = result;
  } catch (error) {
    if (isExpired(error)) return showLogin(page.text("sessions.expired"));
    if (error.code === "not_found") return showLogin(page.text("sessions.other_account"));
    if (page.element("list").hidden) return page.showFailure(page.message(error), true);
    page.element("list-error").textContent = page.message(error);
    page.element("list-error").hidden = false;
    page.element("list-error").focus();
  }
}

async function open() {
  page.fill({ tenant: account().tenant, email: account().email });
  await run(async () => {
    await list();
    page.showSection("list");
  });
}

async function logIn() {
  const credentials = { email: email.value, password: password.value };
  const { user_id, tenant_id } = await page.post("pages/sessions/login", credentials, { "x-tenant-id": tenant.value });
  sessionStorage.setItem(STORAGE, JSON.stringify({ user_id, tenant: tenant_id, email: email.value }));
  page.forget();
  password.value = "";
  await open();
}

page.onSubmit(form, { action: logIn, fieldOf: (code) => (code === "login_failed" ? password : undefined) });
page.element("log-out").addEventListener("click", () => run(logOut));
if (account()) open();
else showLogin();
