// What the pages share: the parameters behind `#`, one line that says how things stand, and calls of the API.

const answer = document.getElementById("answer");

// Read once: the fragment never reaches a server, and it leaves the address bar at once.
export const parameters = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, "", location.pathname);
// A link that is opened where the page is open already changes nothing but the fragment.
addEventListener("hashchange", () => location.reload());

export function say(text, kind = "") {
  answer.textContent = text;
  answer.className = kind;
}

export function refuse(text, field) {
  say(text, "bad");
  field?.focus();
}

// The last thing that the page says: what was done. The keyboard and screen readers follow.
export function finish(text) {
  say(text, "good");
  answer.tabIndex = -1;
  answer.focus();
}

// What the service answers when it refuses. Whatever else goes wrong, it was not reached.
class Refusal extends Error {}

export async function post(path, body, headers = {}) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  if (!response.ok) {
    const problem = await response.json();
    throw new Refusal(`${problem.title}. ${problem.errors?.[0]?.message ?? problem.detail}`);
  }
  return response.status === 204 ? null : response.json();
}

// Does some work while nothing can be pressed, and says what went wrong with it at the field where it is put right.
export async function busy(work, field) {
  const buttons = document.querySelectorAll("button");
  buttons.forEach((button) => (button.disabled = true));
  say("One moment …");
  const failure = await work().catch((error) => error);
  buttons.forEach((button) => (button.disabled = false));
  if (!failure) return;
  const unreached = "The service cannot be reached now. Try again in a moment.";
  refuse(failure instanceof Refusal ? failure.message : unreached, failure.field ?? field);
}
