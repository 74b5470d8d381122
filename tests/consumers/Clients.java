// Reads with the calls of jnats that a program usually has, with default options. Exits with 1 if a call has another result.
//
// Usage: Clients <filter of the durable>. NATS_URL, NATS_USER and NATS_PASSWORD are those of the consumer.

import io.nats.client.Connection;
import io.nats.client.JetStream;
import io.nats.client.JetStreamManagement;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PullSubscribeOptions;
import io.nats.client.PushSubscribeOptions;
import java.time.Duration;

public final class Clients {
    private static final String NAME = System.getenv("NATS_USER");
    private static final Duration WAIT = Duration.ofSeconds(10);
    private static boolean failed;

    interface Call {
        Object result() throws Exception;
    }

    /** Checks that the result or the error of a call contains a text. */
    private static void expect(String name, String text, Call call) {
        String found;
        try {
            found = String.valueOf(call.result());
        } catch (Exception error) {
            found = error.toString();
        }
        if (!found.contains(text)) {
            failed = true;
            System.out.println(name + ": " + found + " instead of " + text);
        }
    }

    private static String id(Message event) throws Exception {
        event.ackSync(WAIT);
        return event.getHeaders().getFirst("ce-id");
    }

    public static void main(String[] arguments) throws Exception {
        String subject = arguments[0];
        String noConsumer = "login `" + NAME + "` cannot create a consumer: read its durable `" + NAME + "`";
        Options options = Options.builder().server(System.getenv("NATS_URL")).userInfo(NAME, System.getenv("NATS_PASSWORD")).build();
        try (Connection broker = Nats.connect(options)) {
            JetStream stream = broker.jetStream();
            expect("ConsumerContext", "event-", () -> id(broker.getConsumerContext("UDM", NAME).next(WAIT)));
            expect("StreamContext", "event-", () -> id(broker.getStreamContext("UDM").getConsumerContext(NAME).next(WAIT)));
            PullSubscribeOptions bound = PullSubscribeOptions.bind("UDM", NAME);
            expect("bind", "event-", () -> id(stream.subscribe(null, bound).fetch(1, WAIT).get(0)));
            PullSubscribeOptions durable = PullSubscribeOptions.builder().durable(NAME).build();
            expect("durable", "event-", () -> id(stream.subscribe(subject, durable).fetch(1, WAIT).get(0)));
            JetStreamManagement management = broker.jetStreamManagement();
            expect("stream names", "[UDM]", management::getStreamNames);
            expect("streams", "1", () -> management.getStreams().size());
            expect("consumer names", "[" + NAME + "]", () -> management.getConsumerNames("UDM"));
            expect("consumers", "1", () -> management.getConsumers("UDM").size());
            expect("push", noConsumer, () -> stream.subscribe(subject));
            PushSubscribeOptions ordered = PushSubscribeOptions.builder().ordered(true).build();
            expect("ordered", noConsumer, () -> stream.subscribe(subject, ordered));
            PushSubscribeOptions push = PushSubscribeOptions.builder().durable(NAME).build();
            expect("push durable", "already configured as a pull consumer", () -> stream.subscribe(subject, push));
        }
        System.exit(failed ? 1 : 0);
    }
}
