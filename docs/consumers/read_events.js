// Reads the new events of a tenant in a browser, and continues after a lost connection. `EventSource` cannot be used: it cannot send the
// header `Authorization`. Calls `handle` with each event. Ends with an error that a retry does not change.
async function readEvents(api, key, handle) {
  for (let id = ""; ; await new Promise((resolve) => setTimeout(resolve, 1000))) {
    const headers = { Authorization: `Bearer ${key}`, ...(id && { "Last-Event-ID": id }) };
    const response = await fetch(`${api}/events/stream`, { headers }).catch(() => null);
    if (response && response.status !== 429 && response.status >= 400 && response.status < 500) {
      throw new Error(await response.text());
    }
    if (!response?.ok) continue;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const { value, done } = await reader.read().catch(() => ({ done: true }));
      if (done) break;
      const frames = (text + value).split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        const field = (name) => frame.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1];
        if (field("event") === "udm") handle(JSON.parse(field("data")));
        id = field("id") ?? id;
      }
    }
  }
}
