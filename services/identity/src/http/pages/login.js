// The login of a page for one task. The page logs out after the task, after an error, and when it is closed.

import * as page from "./page.js";

let session = null;

// The header with the session; null without one.
export const bearer = () => session && { authorization: `Bearer ${session}` };

// Uses a session that another request has created.
export const adopt = (session_id) => (session = session_id);

// Logs in with the fields of a form. Returns the user.
export async function logIn(fields) {
  const paths = { password: "auth/password/login", secondFactor: "auth/second-factor", passkey: "auth/passkey/login" };
  const { session_id, user_id } = await page.logIn(paths, fields);
  session = session_id;
  try {
    // After a login with a passkey alone.
    if (!fields.email.value) fields.email.value = (await page.send("GET", `users/${user_id}`, { headers: bearer() })).email;
  } catch (error) {
    await logOut();
    throw error;
  }
  return user_id;
}

// Returns whether the page is logged out. Otherwise the idle timeout ends its session.
export async function logOut() {
  if (!session) return true;
  const headers = { "x-session-id": session };
  session = null;
  const request = page.send("POST", "auth/sessions/logout", { headers, keepalive: true });
  return request.then(() => true, () => false);
}

addEventListener("pagehide", logOut);
