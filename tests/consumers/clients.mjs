// Reads with the calls of nats.js that a program usually has, with default options. Exits with 1 if a call has another result. Needs the
// packages of version 3 (@nats-io) or of version 2 (nats) in its directory.
//
// Usage: clients.mjs <filter of the durable>. NATS_URL, NATS_USER and NATS_PASSWORD are those of the consumer.
import { readFile } from "node:fs/promises";

const { NATS_URL: servers, NATS_USER: name, NATS_PASSWORD: pass } = process.env;
const subject = process.argv[2];
const noConsumer = `login \`${name}\` cannot create a consumer: read its durable \`${name}\``;
let failed = false;

/** Checks that the result or the error of a call contains a text. */
async function expect(call, text, result) {
  const found = await result().catch((error) => `${error} ${error.api_error?.description ?? ""}`);
  if (!String(found).includes(text)) {
    failed = true;
    console.log(`${call}: ${found} instead of ${text}`);
  }
}

async function id(event) {
  if (!(await event.ackAck())) throw new Error("not acknowledged");
  return event.headers.get("ce-id");
}

async function first(events) {
  for await (const event of events) return id(event);
}

async function names(list) {
  const found = [];
  for await (const { name, config } of list) found.push(name ?? config.name);
  return found;
}

/** Calls that both versions have. */
async function read(stream, manager) {
  const consumer = () => stream.consumers.get("UDM", name);
  await expect("next", "event-", async () => id(await (await consumer()).next({ expires: 10_000 })));
  await expect("fetch", "event-", async () => first(await (await consumer()).fetch({ max_messages: 1, expires: 10_000 })));
  await expect("consume", "event-", async () => first(await (await consumer()).consume({ max_messages: 1 })));
  await expect("streams.list", "UDM", () => names(manager.streams.list()));
  await expect("consumers.list", name, () => names(manager.consumers.list("UDM")));
  await expect("consumers.info", name, async () => (await manager.consumers.info("UDM", name)).name);
  const other = { durable_name: "other", ack_policy: "explicit", filter_subject: subject };
  await expect("consumers.add", noConsumer, () => manager.consumers.add("UDM", other));
}

/** Calls of version 2 only. */
async function readWithVersion2(stream) {
  await expect("pull", "event-", async () => id(await stream.pull("UDM", name, 10_000)));
  await expect("batch", "event-", async () => first(stream.fetch("UDM", name, { batch: 1, expires: 10_000 })));
}

const { dependencies } = JSON.parse(await readFile(new URL("package.json", import.meta.url)));
const isVersion2 = "nats" in dependencies;
const { connect } = await import(isVersion2 ? "nats" : "@nats-io/transport-node");
const broker = await connect({ servers, user: name, pass });
if (isVersion2) {
  await read(broker.jetstream(), await broker.jetstreamManager());
  await readWithVersion2(broker.jetstream());
} else {
  const { jetstream, jetstreamManager } = await import("@nats-io/jetstream");
  await read(jetstream(broker), await jetstreamManager(broker));
  const ordered = () => jetstream(broker).consumers.get("UDM");
  await expect("ordered", noConsumer, async () => first(await (await ordered()).fetch({ expires: 1000 })));
}
await broker.close();
process.exit(failed ? 1 : 0);
