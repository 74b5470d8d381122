// The login of a page for one task. The page keeps it while the person corrects an entry: a code is valid once. It logs out after the task,
// after an error of the network or of the login, and when it is closed.

import * as page from "./page.js";

const password = document.querySelector("[autocomplete=current-password]");
// The errors after which the session is of no use.
const REJECTED = ["unauthenticated", "credential_invalid", "reauthentication_required", "login_failed"];

let session = null;
let user;

// The header with the session; null without one.
export const bearer = () => session && { authorization: `Bearer ${session}` };

// Uses a session that another request has created.
export const adopt = (session_id) => (session = session_id);

// Logs in with the fields of a form, unless the page is logged in with them. Returns the user.
export async function logIn(fields) {
  // A passkey can be that of another account.
  if (session && !page.hasAssertion()) return user;
  if (session) await logOut();
  const paths = { password: "auth/password/login", secondFactor: "auth/second-factor", passkey: "auth/passkey/login" };
  const { session_id, user_id } = await page.logIn(paths, fields);
  [session, user] = [session_id, user_id];
  try {
    // After a login with a passkey alone.
    if (!fields.email.value) fields.email.value = (await page.send("GET", `users/${user_id}`, { headers: bearer() })).email;
  } catch (error) {
    await logOut();
    throw error;
  }
  password.required = false;
  return user_id;
}

// Runs a request of the session. Logs out if it fails in a way that the person cannot correct in the form.
export async function whileLoggedIn(request) {
  try {
    return await request();
  } catch (error) {
    if (!(error instanceof page.Problem) || error.isUnknown || REJECTED.includes(error.code)) await logOut();
    throw error;
  }
}

// Returns whether the page is logged out. Otherwise the idle timeout ends its session.
export async function logOut() {
  password.required = true;
  if (!session) return true;
  const headers = { "x-session-id": session };
  session = null;
  const request = page.send("POST", "auth/sessions/logout", { headers, keepalive: true });
  return request.then(() => true, () => false);
}

addEventListener("pagehide", logOut);
// Another account or password is another login.
password.form.addEventListener("input", ({ target }) => page.isOfLogin(target) && logOut());
