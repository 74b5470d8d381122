//! Reads of stored events on a real nats-server: nothing is lost or repeated.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use async_nats::jetstream;
use bus::{
    Config, Connection, EventContext, EventFilter, EventRead, EventReader, EventStreams, Message, Position,
    Profile, ReadItem, Start,
};
use bytes::Bytes;
use chrono::DateTime;
use futures::StreamExt as _;
use service::Tasks;
use testkit::nats::NatsServer;
use testkit::{wait_until, within};

const IDLE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_mins(1);

struct Broker {
    server: NatsServer,
    context: jetstream::Context,
    reader: EventReader,
    tasks: Tasks,
}

impl Broker {
    async fn start(streams: u8) -> Self {
        let (server, tasks) = (NatsServer::start().await.unwrap(), Tasks::default());
        let config = Config::new(&server.url, "test");
        let context = jetstream::new(bus::connect(&config).await.unwrap());
        let streams = EventStreams::new(streams).unwrap();
        bus::ensure(&context, &Profile { streams, ..Profile::single_server(64 << 20) }).await.unwrap();
        let reader = EventReader::new(Connection::open(&config).await.unwrap(), streams, IDLE, &tasks);
        let broker = Self { server, context, reader, tasks };
        broker.wait_for_connection().await;
        broker
    }

    async fn wait_for_connection(&self) {
        wait_until("the reader is connected", async || {
            self.reader.read(&of("acme"), Start::New, true).await.ok().map(drop)
        })
        .await;
    }

    /// Publishes an event and waits for the acknowledgement.
    #[expect(clippy::disallowed_methods, reason = "publishes to any stream")]
    async fn publish(&self, tenant: &str, event_type: &str, source_id: &str, payload: &str) {
        let json = format!(r#"{{"source_id":"{source_id}","metadata":{{"event_type":"{event_type}"}}}}"#);
        let context =
            EventContext::new(tenant.parse().unwrap(), DateTime::UNIX_EPOCH, "req-1", "key:k1", None);
        let event = udm::parse(json.as_bytes()).unwrap();
        let id = format!("{tenant}:{payload:.40}");
        let message =
            Message::event(&context, &event, &id, Bytes::copy_from_slice(payload.as_bytes())).unwrap();
        let (subject, headers) = (message.subject().clone(), message.headers());
        let ack = self.context.publish_with_headers(subject, headers, message.payload().clone()).await;
        ack.unwrap().await.unwrap();
    }

    /// Publishes many events at the same time: types and payloads.
    async fn publish_many(&self, tenant: &str, events: impl Iterator<Item = (String, u32)>) {
        let publish = async |(event_type, number): (String, u32)| {
            self.publish(tenant, &event_type, &format!("fw-{}", number % 7), &number.to_string()).await;
        };
        futures::stream::iter(events).for_each_concurrent(256, publish).await;
    }

    async fn publish_numbers(&self, tenant: &str, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.publish(tenant, "LOGIN", &format!("fw-{}", number % 7), &number.to_string()).await;
        }
    }

    async fn read(&self, filter: &EventFilter, start: Start) -> EventRead {
        self.reader.read(filter, start, true).await.unwrap()
    }

    /// Reads all events that are stored now. Returns their payloads and whether there was a gap.
    async fn read_stored(&self, filter: &EventFilter, start: Start) -> (Vec<String>, bool) {
        let mut read = self.reader.read(filter, start, false).await.unwrap();
        let (mut payloads, mut has_gap) = (Vec::new(), false);
        while let Some(item) = within(LIMIT, "the next item", read.next()).await {
            match item.unwrap() {
                ReadItem::Event(event) => payloads.push(payload(&event.payload)),
                ReadItem::Gap => has_gap = true,
                ReadItem::Idle => {}
            }
        }
        (payloads, has_gap)
    }

    /// Reads all events that are stored now. Returns the position after them.
    async fn read_to_end(&self) -> Position {
        let mut read =
            self.reader.read(&of("acme"), Start::Since(DateTime::UNIX_EPOCH), false).await.unwrap();
        while let Some(item) = within(LIMIT, "the next item", read.next()).await {
            item.unwrap();
        }
        Position::from_bytes(&read.position().to_bytes()).unwrap()
    }

    async fn restart(&mut self) {
        self.server.restart().await.unwrap();
        self.wait_for_connection().await;
    }

    async fn consumers(&self, stream: &str) -> usize {
        self.context.get_stream(stream).await.unwrap().cached_info().state.consumer_count
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
    }
}

fn of(tenant: &str) -> EventFilter {
    EventFilter { tenant: tenant.parse().unwrap(), event_types: Vec::new(), source_ids: Vec::new() }
}

fn copy_directory(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "{status}");
}

fn payload(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Returns the payloads of the next events.
async fn next_events(read: &mut EventRead, count: usize) -> Vec<String> {
    let mut payloads = Vec::new();
    while payloads.len() < count {
        match within(LIMIT, "the next item", read.next()).await.unwrap().unwrap() {
            ReadItem::Event(event) => payloads.push(payload(&event.payload)),
            ReadItem::Idle => {}
            ReadItem::Gap => panic!("unexpected gap after {payloads:?}"),
        }
    }
    payloads
}

async fn next_idle(read: &mut EventRead) -> Position {
    while within(LIMIT, "an idle item", read.next()).await.unwrap().unwrap() != ReadItem::Idle {}
    read.position().clone()
}

#[tokio::test]
async fn read_of_new_events_returns_those_of_its_tenant_in_order() {
    let broker = Broker::start(1).await;
    broker.publish_numbers("acme", 0..3).await;
    let mut read = broker.read(&of("acme"), Start::New).await;
    broker.publish_numbers("other", 100..103).await;
    broker.publish_numbers("acme", 3..300).await;
    assert_eq!(next_events(&mut read, 297).await, numbers(3..300));
}

#[tokio::test]
async fn read_continues_after_any_position_without_loss_and_repetition() {
    for streams in [1, 4] {
        let broker = Broker::start(streams).await;
        let mut read = broker.read(&of("acme"), Start::New).await;
        let mut seen = Vec::new();
        for round in 0..10 {
            broker.publish_numbers("other", round * 10..round * 10 + 3).await;
            broker.publish_numbers("acme", round * 10..round * 10 + 10).await;
            seen.extend(next_events(&mut read, 7).await);
            let position = Position::from_bytes(&read.position().to_bytes()).unwrap();
            drop(read);
            read = broker.read(&of("acme"), Start::After(position)).await;
        }
        seen.extend(next_events(&mut read, 30).await);
        let mut sorted: Vec<u32> = seen.iter().map(|number| number.parse().unwrap()).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>(), "{streams} streams: {seen:?}");
        let position = next_idle(&mut read).await;
        assert_eq!(broker.read_stored(&of("acme"), Start::After(position)).await, (Vec::new(), false));
    }
}

#[tokio::test]
async fn filters_select_types_and_sources_in_all_streams() {
    for streams in [1, 2, 64] {
        let broker = Broker::start(streams).await;
        let start = Start::After(broker.read(&of("acme"), Start::New).await.position().clone());
        for number in 0..40 {
            let (event_type, source) = (["A", "B", "C"][number % 3], format!("fw {}", number % 4));
            broker.publish("acme", event_type, &source, &number.to_string()).await;
        }
        let read = async |event_types: &[&str], source_ids: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
            let filter =
                EventFilter { event_types: texts(event_types), source_ids: texts(source_ids), ..of("acme") };
            let (mut found, has_gap) = broker.read_stored(&filter, start.clone()).await;
            assert!(!has_gap);
            found.sort_by_key(|number| number.parse::<usize>().unwrap());
            found
        };
        let expected = |select: fn(usize) -> bool| -> Vec<String> {
            (0..40).filter(|number| select(*number)).map(|number| number.to_string()).collect()
        };
        assert_eq!(read(&[], &[]).await, expected(|_| true));
        assert_eq!(read(&["A", "C"], &[]).await, expected(|number| number % 3 != 1));
        assert_eq!(read(&[], &["fw 1"]).await, expected(|number| number % 4 == 1));
        assert_eq!(
            read(&["B"], &["fw 1", "fw 2"]).await,
            expected(|number| number % 3 == 1 && [1, 2].contains(&(number % 4)))
        );
        assert!(read(&[], &["fw 9"]).await.is_empty());
    }
}

#[tokio::test]
async fn a_read_since_a_time_returns_all_events_of_several_types() {
    let broker = Broker::start(1).await;
    // Of one of the types, there are earlier events.
    broker.publish("acme", "GENERIC_EVENT", "i1", "earlier").await;
    let last = broker.context.get_stream("UDM").await.unwrap().cached_info().state.last_timestamp;
    let after_last = i64::try_from(last.unix_timestamp_nanos() + 1).unwrap();
    let start = Start::Since(DateTime::from_timestamp_nanos(after_last));
    for (event_type, source) in [
        ("GENERIC_EVENT", "i1"),
        ("GENERIC_EVENT", "i2"),
        ("GENERIC_EVENT", "i3"),
        ("C", "i4"),
        ("GENERIC_EVENT", "i4"),
    ] {
        let payload = format!("{event_type} {source}");
        broker.publish("acme", event_type, source, &payload).await;
    }
    let read = async |event_types: &[&str]| {
        let event_types = event_types.iter().map(ToString::to_string).collect();
        let filter = EventFilter { event_types, ..of("acme") };
        let (payloads, has_gap) = broker.read_stored(&filter, start.clone()).await;
        assert!(!has_gap);
        payloads.len()
    };
    assert_eq!(read(&[]).await, 5);
    assert_eq!(read(&["C", "GENERIC_EVENT"]).await, 5);
    assert_eq!(read(&["GENERIC_EVENT"]).await, 4);
}

#[tokio::test]
async fn a_read_skips_many_events_of_other_types_and_its_position_follows() {
    let broker = Broker::start(1).await;
    let start = Start::After(broker.read(&of("acme"), Start::New).await.position().clone());
    let types =
        |number| if number % 2 == 0 { "GENERIC_EVENT".to_owned() } else { format!("T{}", number % 1_000) };
    broker.publish_many("acme", (0..20_000).map(|number| (types(number), number))).await;
    let filter = EventFilter { event_types: vec!["LOGIN".to_owned()], ..of("acme") };
    let mut read = broker.reader.read(&filter, start, false).await.unwrap();
    let mut positions = vec![read.position().to_bytes()];
    while let Some(item) = within(LIMIT, "the next item", read.next()).await {
        assert_eq!(item.unwrap(), ReadItem::Idle);
        positions.push(read.position().to_bytes());
    }
    positions.dedup();
    assert!(positions.len() > 10, "a client that continues advances: {} positions", positions.len());
}

#[tokio::test]
async fn idle_read_moves_its_position_behind_events_of_others() {
    let broker = Broker::start(1).await;
    broker.publish_numbers("acme", 0..1).await;
    let mut read = broker.read(&of("acme"), Start::New).await;
    broker.publish_numbers("other", 0..5).await;
    wait_until("the position is behind the events of the other tenant", async || {
        (next_idle(&mut read).await.to_bytes()[4..12] == 6_u64.to_be_bytes()).then_some(())
    })
    .await;
    let stream = broker.context.get_stream("UDM").await.unwrap();
    stream.purge().await.unwrap();
    let after = Start::After(read.position().clone());
    broker.publish_numbers("acme", 1..2).await;
    assert_eq!(broker.read_stored(&of("acme"), after).await, (numbers(1..2), false));
}

#[tokio::test]
async fn events_that_are_not_stored_any_more_are_reported_as_a_gap() {
    let broker = Broker::start(1).await;
    let position = broker.read(&of("acme"), Start::New).await.position().clone();
    let (all, early) = (Start::After(position), Start::Since(DateTime::UNIX_EPOCH));
    let since = |time: &str| Start::Since(time.parse().unwrap());
    broker.publish_numbers("acme", 0..10).await;
    assert_eq!(broker.read_stored(&of("acme"), early.clone()).await, (numbers(0..10), false));
    let stream = broker.context.get_stream("UDM").await.unwrap();
    stream.purge().sequence(6).await.unwrap();
    assert_eq!(broker.read_stored(&of("acme"), all.clone()).await, (numbers(5..10), true));
    assert_eq!(broker.read_stored(&of("acme"), early.clone()).await, (numbers(5..10), true));
    let before_all = since("1600-01-01T00:00:00Z");
    assert_eq!(broker.read_stored(&of("acme"), before_all).await, (numbers(5..10), true));
    for late in ["2200-01-01T00:00:00Z", "2263-01-01T00:00:00Z"] {
        assert_eq!(broker.read_stored(&of("acme"), since(late)).await, (Vec::new(), false), "{late}");
    }

    broker.context.delete_stream("UDM").await.unwrap();
    bus::ensure(&broker.context, &Profile::single_server(64 << 20)).await.unwrap();
    broker.publish_numbers("acme", 20..22).await;
    assert_eq!(broker.read_stored(&of("acme"), all).await, (numbers(20..22), true));
}

#[tokio::test]
async fn slow_read_reports_events_that_were_removed_meanwhile() {
    let broker = Broker::start(1).await;
    let mut read = broker.read(&of("acme"), Start::New).await;
    broker.publish_numbers("acme", 0..600).await;
    assert_eq!(next_events(&mut read, 1).await, numbers(0..1));
    broker.context.get_stream("UDM").await.unwrap().purge().sequence(591).await.unwrap();
    let (mut seen, mut gaps) = (Vec::new(), 0);
    while seen.last().is_none_or(|last| last != "599") {
        match within(LIMIT, "the next item", read.next()).await.unwrap().unwrap() {
            ReadItem::Event(event) => seen.push(payload(&event.payload)),
            ReadItem::Gap => gaps += 1,
            ReadItem::Idle => {}
        }
    }
    assert_eq!(gaps, 1);
    assert_eq!(seen[seen.len() - 10..], numbers(590..600));
}

#[tokio::test]
async fn largest_events_are_read() {
    let broker = Broker::start(1).await;
    let mut read = broker.read(&of("acme"), Start::New).await;
    let payloads: Vec<_> = (0..5).map(|number| number.to_string() + &"x".repeat(256 * 1024 - 1)).collect();
    for payload in &payloads {
        broker.publish("acme", "LOGIN", "fw", payload).await;
    }
    assert!(next_events(&mut read, 5).await == payloads);
}

#[tokio::test]
async fn read_fails_when_the_broker_stops_and_the_next_read_continues() {
    let mut broker = Broker::start(1).await;
    let mut read = broker.read(&of("acme"), Start::New).await;
    broker.publish_numbers("acme", 0..5).await;
    assert_eq!(next_events(&mut read, 3).await, numbers(0..3));
    broker.server.stop();
    let mut seen = 3;
    let error = loop {
        match within(LIMIT, "the end of the read", read.next()).await.unwrap() {
            Ok(ReadItem::Event(event)) => {
                assert_eq!(payload(&event.payload), seen.to_string());
                seen += 1;
            }
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("broke"), "{error}");
    let filter = of("acme");
    let rejected = broker.reader.read(&filter, Start::New, true);
    assert!(within(Duration::from_secs(1), "the rejection", rejected).await.is_err());
    let position = read.position().clone();
    broker.server.restart().await.unwrap();
    let (rest, has_gap) = wait_until("the broker is reachable", async || {
        broker.reader.read(&of("acme"), Start::New, true).await.ok()?;
        Some(broker.read_stored(&of("acme"), Start::After(position.clone())).await)
    })
    .await;
    assert_eq!((rest, has_gap), (numbers(seen..5), false));
}

#[tokio::test]
async fn a_reader_ahead_of_a_restored_copy_gets_a_gap_also_after_the_stream_has_grown_again() {
    let mut broker = Broker::start(1).await;
    let copy = broker.server.data().with_extension("copy");
    broker.publish_numbers("acme", 0..10).await;
    let early = broker.read_to_end().await;
    broker.server.stop();
    copy_directory(&broker.server.data(), &copy);
    broker.restart().await;
    broker.publish_numbers("acme", 10..30).await;
    let late = broker.read_to_end().await;
    broker.publish_numbers("other", 0..10).await;
    let idle = next_idle(&mut broker.read(&of("acme"), Start::After(late.clone())).await).await;

    broker.server.stop();
    std::fs::remove_dir_all(broker.server.data()).unwrap();
    copy_directory(&copy, &broker.server.data());
    broker.restart().await;
    broker.publish_numbers("acme", 100..150).await;
    let all = [numbers(0..10), numbers(100..150)].concat();
    for position in [late, idle] {
        assert_eq!(broker.read_stored(&of("acme"), Start::After(position)).await, (all.clone(), true));
    }
    let expected = (numbers(100..150), false);
    assert_eq!(broker.read_stored(&of("acme"), Start::After(early)).await, expected);
}

#[tokio::test]
async fn consumers_are_deleted_with_the_read() {
    let broker = Broker::start(2).await;
    let read = broker.read(&of("acme"), Start::New).await;
    wait_until("both streams have a consumer", async || {
        (broker.consumers("UDM_00_31").await == 1 && broker.consumers("UDM_32_63").await == 1).then_some(())
    })
    .await;
    drop(read);
    wait_until("no stream has a consumer", async || {
        (broker.consumers("UDM_00_31").await == 0 && broker.consumers("UDM_32_63").await == 0).then_some(())
    })
    .await;
}
