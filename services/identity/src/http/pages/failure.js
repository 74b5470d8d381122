// A script that cannot be loaded or run changes the notice at once. It does not wait for the time that a slow network can need.

function show() {
  document.getElementById("loading")?.remove();
  document.getElementById("incomplete").classList.remove("delayed");
}

addEventListener("error", ({ target }) => {
  if (target !== window && target.localName !== "script") return;
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", show);
  else show();
}, true);
