// Prints the events of a durable consumer. Needs Node.js 20; package.json names its packages.
//
// NATS_URL (nats://host:4222), NATS_USER (the name of the consumer) and NATS_PASSWORD configure it. SIGINT or SIGTERM stops it. Several
// processes can share the events of a consumer.
import { setTimeout as sleep } from "node:timers/promises";
import { connect, headers as newHeaders } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

const { NATS_URL: servers, NATS_USER: name, NATS_PASSWORD: pass } = process.env;
const MAX_PAYLOAD = 100_000;
// Larger events remain in their stream, and a dead letter refers to them.
const MAX_COPY = 4096;
// Few, because the events of a batch wait for each other.
const BATCH = 10;
// Milliseconds until an event that could not be handled is delivered again.
const RETRY_DELAY = 30_000;

/** No attempt can succeed. */
class Rejected extends Error {}

/** Replace this. An event that was handled before is delivered again after a crash. */
async function handle(event) {
  if (event.data.length > MAX_PAYLOAD) throw new Rejected("too large for this consumer");
  const header = (key) => event.headers.get(key);
  console.log(tenant(event), decodeURIComponent(header("ce-source")), header("ce-id"), header("ce-type"));
}

const tenant = (event) => event.subject.split(".")[3];

/** Keeps the event for `svc events dlq`. Returns after it is stored. */
async function deadLetter(stream, event, reason) {
  const headers = newHeaders();
  for (const [key, values] of event.headers) {
    if (!key.startsWith("Nats-")) values.forEach((value) => headers.append(key, value));
  }
  headers.set("Nats-Msg-Id", `${name}-${event.info.stream}-${event.seq}`);
  headers.set("Udm-Dlq-Stream", event.info.stream);
  headers.set("Udm-Dlq-Sequence", `${event.seq}`);
  headers.set("Udm-Dlq-Reason", reason.slice(0, 500));
  headers.set("Udm-Dlq-Attempts", `${event.info.deliveryCount}`);
  const data = event.data.length <= MAX_COPY ? event.data : new Uint8Array();
  await stream.publish(`udm.dlq.v1.${tenant(event)}.${name}`, data, { headers });
}

/** Handles an event and acknowledges it, or lets the broker deliver it again. Returns whether the broker knows that it was delivered. */
async function process_(stream, event, types, ackWait) {
  const replayFor = event.headers.get("Udm-Replay-For");
  const isForThis = replayFor === "" || replayFor === name;
  const isSelected = types.length === 0 || types.includes(event.headers.get("ce-type"));
  try {
    if (isForThis && isSelected) await handle(event);
  } catch (error) {
    try {
      if (!(error instanceof Rejected)) throw error;
      // Fails for example if the tenant has too many dead letters. The event remains, and others are handled.
      await deadLetter(stream, event, error.message);
    } catch (failure) {
      console.error(`failed, will be tried again: ${failure.message}`);
      event.nak(RETRY_DELAY);
      return true;
    }
  }
  return acknowledge(event, ackWait);
}

/** Acknowledges an event, also while the broker restarts. Returns whether the broker has confirmed it. */
async function acknowledge(event, ackWait) {
  for (const end = Date.now() + ackWait; Date.now() < end; await sleep(500)) {
    // `ackAck` sends one acknowledgement at most, also if it fails. Then `working` sends nothing either.
    if (await broker.request(event.reply, "+ACK", { timeout: 1000 }).then(() => true, () => false)) return true;
  }
  return false;
}

// Without a limit of reconnections, the program survives an outage of the broker, and a login that is rejected for some time.
const broker = await connect({ servers, user: name, pass, maxReconnectAttempts: -1, ignoreAuthErrorAbort: true });
/** Prints errors of the connection, for example a rejected login. */
async function report() {
  for await (const { error } of broker.status()) if (error) console.error(error.message);
}
report();
let stopped = false;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (stopped = true));
const stream = jetstream(broker);
const consumer = await stream.consumers.get(process.env.NATS_STREAM ?? "UDM", name);
const { config } = await consumer.info(true);
// The types that the durable is for, or none for all. Events of other types can have the subject of GENERIC_EVENT.
const types = JSON.parse(config.metadata?.["svc-definition"] ?? "{}").event_types ?? [];
const ackWait = config.ack_wait / 1e6;
const waiting = [];
// Extends the time for the acknowledgements of the events that wait or are handled.
const extending = setInterval(() => waiting.forEach((event) => event.working()), ackWait / 3);
while (!stopped) {
  if (broker.isClosed()) {
    console.error("connection closed");
    process.exit(1);
  }
  try {
    for await (const event of await consumer.fetch({ max_messages: BATCH, expires: 2000 })) waiting.push(event);
    while (waiting.length > 0 && !stopped) {
      if (await process_(stream, waiting[0], types, ackWait)) waiting.shift();
      // The durable was reset: the rest is delivered again too.
      else waiting.length = 0;
    }
  } catch (error) {
    console.error(error.message);
    await sleep(1000);
  }
}
clearInterval(extending);
// The rest is delivered again at once.
waiting.forEach((event) => event.nak());
// Does not wait for a broker that is not available.
await Promise.race([broker.drain().catch(() => {}), sleep(5000)]);
process.exit();
