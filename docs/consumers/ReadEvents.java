// Prints the events of a durable consumer. Needs Java 17; pom.xml names its packages:
//   mvn dependency:copy-dependencies -DoutputDirectory=lib && java -cp 'lib/*' ReadEvents.java
//
// NATS_URL (nats://host:4222), NATS_USER (the name of the consumer) and NATS_PASSWORD configure it. SIGINT or SIGTERM stops it. Several
// processes can share the events of a consumer.

import io.nats.client.Connection;
import io.nats.client.ConsumerContext;
import io.nats.client.FetchConsumeOptions;
import io.nats.client.FetchConsumer;
import io.nats.client.JetStream;
import io.nats.client.JetStreamApiException;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.impl.Headers;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public final class ReadEvents {
    private static final String NAME = System.getenv("NATS_USER");
    private static final int MAX_PAYLOAD = 100_000;
    // Larger events remain in their stream, and a dead letter refers to them.
    private static final int MAX_COPY = 4096;
    // Few, because the events of a batch wait for each other.
    private static final int BATCH = 10;
    // Time until an event that could not be handled is delivered again.
    private static final Duration RETRY_DELAY = Duration.ofSeconds(30);

    private final Connection broker;
    private final JetStream stream;
    private final ConsumerContext consumer;
    private final List<String> types;
    private final Duration ackWait;
    private final Queue<Message> waiting = new ConcurrentLinkedQueue<>();
    private volatile boolean stopped;

    /** No attempt can succeed. */
    private static final class Rejected extends Exception {
        Rejected(String reason) {
            super(reason);
        }
    }

    /** Replace this. It may block. An event that was handled before is delivered again after a crash. */
    private static void handle(Message event) throws Exception {
        if (event.getData().length > MAX_PAYLOAD) {
            throw new Rejected("too large for this consumer");
        }
        // URLDecoder reads `+` as a space.
        String source = URLDecoder.decode(header(event, "ce-source").replace("+", "%2B"), StandardCharsets.UTF_8);
        System.out.println(String.join(" ", tenant(event), source, header(event, "ce-id"), header(event, "ce-type")));
    }

    private ReadEvents(Connection broker, String streamName) throws IOException, JetStreamApiException {
        this.broker = broker;
        stream = broker.jetStream();
        consumer = broker.getConsumerContext(streamName, NAME);
        ConsumerConfiguration configuration = consumer.getCachedConsumerInfo().getConsumerConfiguration();
        ackWait = configuration.getAckWait();
        // The types that the durable is for, or none for all. Events of other types can have the subject of GENERIC_EVENT.
        JsonValue definition = JsonParser.parseUnchecked(configuration.getMetadata().getOrDefault("svc-definition", "{}"));
        JsonValue found = definition.map.get("event_types");
        types = found == null || found.array == null ? List.of() : found.array.stream().map(type -> type.string).toList();
    }

    private static String header(Message event, String name) {
        return event.getHeaders().getFirst(name);
    }

    private static String tenant(Message event) {
        return event.getSubject().split("\\.")[3];
    }

    /** Keeps the event for `svc events dlq`. Returns after it is stored. */
    private void deadLetter(Message event, String reason) throws IOException, JetStreamApiException {
        Headers headers = new Headers();
        event.getHeaders().forEach((name, values) -> {
            if (!name.startsWith("Nats-")) {
                headers.put(name, values);
            }
        });
        String number = event.metaData().getStream() + "-" + event.metaData().streamSequence();
        headers.put("Nats-Msg-Id", NAME + "-" + number);
        headers.put("Udm-Dlq-Stream", event.metaData().getStream());
        headers.put("Udm-Dlq-Sequence", String.valueOf(event.metaData().streamSequence()));
        headers.put("Udm-Dlq-Reason", reason.substring(0, Math.min(500, reason.length())));
        headers.put("Udm-Dlq-Attempts", String.valueOf(event.metaData().deliveredCount()));
        byte[] data = event.getData().length <= MAX_COPY ? event.getData() : new byte[0];
        stream.publish("udm.dlq.v1." + tenant(event) + "." + NAME, headers, data);
    }

    /** Handles an event and acknowledges it, or lets the broker deliver it again. Returns whether the broker knows that it was delivered. */
    private boolean process(Message event) throws InterruptedException {
        String replayFor = header(event, "Udm-Replay-For");
        boolean isForThis = replayFor == null || replayFor.equals(NAME);
        boolean isSelected = types.isEmpty() || types.contains(header(event, "ce-type"));
        try {
            if (isForThis && isSelected) {
                handle(event);
            }
        } catch (Rejected rejected) {
            try {
                deadLetter(event, rejected.getMessage());
            } catch (Exception failure) {
                // For example a tenant with too many dead letters. The event remains, and others are handled.
                System.err.println("no dead letter: " + failure.getMessage());
                event.nakWithDelay(RETRY_DELAY);
                return true;
            }
        } catch (Exception failure) {
            System.err.println("failed, will be tried again: " + failure.getMessage());
            event.nakWithDelay(RETRY_DELAY);
            return true;
        }
        return acknowledge(event);
    }

    /** Acknowledges an event, also while the broker restarts. Returns whether the broker has confirmed it. */
    private boolean acknowledge(Message event) throws InterruptedException {
        long end = System.nanoTime() + ackWait.toNanos();
        while (System.nanoTime() < end) {
            try {
                event.ackSync(Duration.ofSeconds(1));
                return true;
            } catch (Exception failure) {
                Thread.sleep(500);
            }
        }
        return false;
    }

    private void run() throws InterruptedException {
        // Extends the time for the acknowledgements of the events that wait or are handled.
        ScheduledExecutorService extending = Executors.newSingleThreadScheduledExecutor();
        long period = ackWait.toMillis() / 3;
        extending.scheduleAtFixedRate(() -> waiting.forEach(Message::inProgress), period, period, TimeUnit.MILLISECONDS);
        FetchConsumeOptions options = FetchConsumeOptions.builder().maxMessages(BATCH).noWaitExpiresIn(2000).build();
        while (!stopped) {
            if (broker.getStatus() == Connection.Status.CLOSED) {
                System.err.println("connection closed");
                // Without the hook, which waits for this thread.
                Runtime.getRuntime().halt(1);
            }
            try (FetchConsumer fetched = consumer.fetch(options)) {
                for (Message event = fetched.nextMessage(); event != null; event = fetched.nextMessage()) {
                    waiting.add(event);
                }
            } catch (Exception failure) {
                System.err.println(failure.getMessage());
                Thread.sleep(1000);
            }
            while (!waiting.isEmpty() && !stopped) {
                if (process(waiting.peek())) {
                    waiting.remove();
                } else {
                    // The durable was reset: the rest is delivered again too.
                    waiting.clear();
                }
            }
        }
        extending.shutdown();
        // The rest is delivered again at once.
        waiting.forEach(Message::nak);
    }

    public static void main(String[] arguments) throws Exception {
        Options options = Options.builder()
                .server(System.getenv("NATS_URL"))
                .userInfo(NAME, System.getenv("NATS_PASSWORD"))
                // Without a limit, the program survives an outage of the broker. jnats closes the connection after two rejected
                // logins. A supervisor starts the program again.
                .maxReconnects(-1)
                .build();
        Connection broker = Nats.connect(options);
        ReadEvents reader = new ReadEvents(broker, System.getenv().getOrDefault("NATS_STREAM", "UDM"));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            reader.stopped = true;
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                main.interrupt();
            }
        }));
        reader.run();
        broker.drain(Duration.ofSeconds(5)).get();
    }
}
