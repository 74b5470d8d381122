// Shared by the pages: parameters of the URL fragment, the status line, and requests to the API.

const status = document.getElementById("status");

// The fragment is never sent to a server. It is removed from the address bar and the history.
export const parameters = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, "", location.pathname);
// A link to the page that is already open changes only the fragment.
addEventListener("hashchange", () => location.reload());

export function show(text, kind = "") {
  status.textContent = text;
  status.className = kind;
}

export function showError(text, field) {
  show(text, "bad");
  field?.focus();
}

// Shows the result and moves the focus to it, for keyboard users and screen readers.
export function finish(text) {
  show(text, "good");
  status.tabIndex = -1;
  status.focus();
}

// A problem document of the service. Other errors mean that the service was not reached.
class Problem extends Error {}

export async function post(path, body, headers = {}) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  if (!response.ok) {
    const problem = await response.json();
    throw new Problem(`${problem.title}. ${problem.errors?.[0]?.message ?? problem.detail}`);
  }
  return response.status === 204 ? null : response.json();
}

// Runs an action with all buttons disabled. On an error, shows it and focuses the field to correct.
export async function run(action, field) {
  const buttons = document.querySelectorAll("button");
  buttons.forEach((button) => (button.disabled = true));
  show("Please wait …");
  const error = await action().catch((error) => error);
  buttons.forEach((button) => (button.disabled = false));
  if (!error) return;
  const unreachable = "The service is not reachable. Try again later.";
  showError(error instanceof Problem ? error.message : unreachable, error.field ?? field);
}
