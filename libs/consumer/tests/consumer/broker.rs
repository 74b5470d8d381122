//! A nats-server with the accounts of `deploy/nats`, the streams, and the durable `consumer`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, Info, PullConsumer, pull};
use async_nats::jetstream::{self, AckKind, Context, stream};
use bus::{
    Connection, ConsumerRequests, DEAD_LETTER_STREAM, Durable, DurableDefinition, DurableFilter, Durables,
    EventContext, EventStreams, EventSubject, Login, Message, Profile, PublishLimits, Publisher,
};
use bytes::Bytes;
use chrono::DateTime;
use consumer::{Config, ConsumerError, Event, Failure};
use futures::TryStreamExt as _;
use hashing::SystemEntropy;
use parking_lot::Mutex;
use service::Tasks;
use service::telemetry::Metrics;
use testkit::nats::NatsServer;
use testkit::{DEADLINE, wait_until, within};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const PASSWORD: &str = "password";
/// In the changes of an event, the type in its subject instead of a header.
const SUBJECT_TYPE: &str = "subject";

/// The time after which the server delivers an unacknowledged event again.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Broker {
    pub(crate) server: NatsServer,
    pub(crate) admin: Context,
    pub(crate) streams: Vec<String>,
}

/// The accounts of the broker, with this password of the consumer.
fn configuration(streams: &[String], password: &str) -> String {
    let login = Durable {
        name: "consumer".to_owned(),
        definition: DurableDefinition::default(),
        login: Some(Login { account: 0, hash: password.to_owned(), digest: None }),
        suspension: None,
        owner: None,
        streams: streams.to_vec(),
        ack_floors: vec![0; streams.len()],
        deliveries: 0,
        delivered_to: 0,
        created_at: DateTime::UNIX_EPOCH,
        pending: 0,
        ack_pending: 0,
        redelivered: 0,
        last_delivered_at: None,
        last_acknowledged_at: None,
        is_paused: false,
        filter_subjects: Vec::new(),
    };
    testkit::nats::accounts_with(&bus::accounts_file(&[login]), |_| PASSWORD.to_owned())
}

impl Broker {
    pub(crate) async fn start() -> Self {
        Self::with_streams(1, 0).await
    }

    /// Starts a server with one or two event streams. The durable delivers each event up to `max_deliver` times; 0 is without
    /// limit.
    pub(crate) async fn with_streams(count: u8, max_deliver: i64) -> Self {
        let event_streams = EventStreams::new(count).unwrap();
        let streams = if count == 1 { vec!["UDM"] } else { vec!["UDM_00_31", "UDM_32_63"] };
        let streams: Vec<_> = streams.into_iter().map(str::to_owned).collect();
        let configuration = configuration(&streams, PASSWORD);
        let server = NatsServer::start_with(&configuration).await.unwrap();
        let url = server.url.replace("nats://", &format!("nats://administrator:{PASSWORD}@"));
        let client = bus::connect(&bus::Config::new(url, "test")).await.unwrap();
        let admin = jetstream::new(client);
        let profile = Profile { streams: event_streams, ..Profile::single_server(64 << 20) };
        bus::ensure(&admin, &profile).await.unwrap();
        answer_requests(&server, event_streams).await;
        let broker = Self { server, admin, streams };
        broker.define_durable(ACK_WAIT, max_deliver).await;
        broker
    }

    /// Creates or changes the durable.
    pub(crate) async fn define_durable(&self, ack_wait: Duration, max_deliver: i64) {
        for stream in &self.streams {
            let durable = pull::Config {
                durable_name: Some("consumer".to_owned()),
                ack_policy: AckPolicy::Explicit,
                ack_wait,
                max_deliver,
                ..pull::Config::default()
            };
            self.admin.create_consumer_on_stream(durable, stream).await.unwrap();
        }
    }

    /// Deletes the durable and creates it again, so that it delivers all events again.
    pub(crate) async fn define_again(&self, ack_wait: Duration) {
        for stream in &self.streams {
            self.admin.delete_consumer_from_stream("consumer", stream).await.unwrap();
        }
        self.define_durable(ack_wait, 0).await;
    }

    /// Lets the broker deliver this number of events, and returns them to it, the last one first.
    pub(crate) async fn return_all(&self, count: usize) {
        let consumer: PullConsumer =
            self.admin.get_consumer_from_stream("consumer", &self.streams[0]).await.unwrap();
        let messages = consumer.fetch().max_messages(count).messages().await.unwrap();
        let mut messages: Vec<_> = messages.try_collect().await.unwrap();
        messages.reverse();
        for message in messages {
            message.double_ack_with(AckKind::Nak(None)).await.unwrap();
        }
    }

    /// Adds or removes the imports for requests to the durable. Without them, a request has no responders, as during a reload.
    pub(crate) async fn set_responders(&self, has_responders: bool) {
        let streams = if has_responders { self.streams.as_slice() } else { &[] };
        self.server.reload(&configuration(streams, PASSWORD)).unwrap();
        let options = async_nats::ConnectOptions::with_user_and_password("consumer".into(), PASSWORD.into());
        let client = options.connect(&self.server.url).await.unwrap();
        wait_until("the broker has reloaded", async || {
            let info = client.request("$JS.API.CONSUMER.INFO.UDM.consumer", Bytes::new()).await;
            (info.is_ok() == has_responders).then_some(())
        })
        .await;
    }

    /// Replaces the password of the consumer.
    pub(crate) fn set_password(&self, password: &str) {
        self.server.reload(&configuration(&self.streams, password)).unwrap();
    }

    pub(crate) fn config(&self) -> Config {
        Config { streams: self.streams.clone(), ..Config::new(&self.server.url, "consumer", PASSWORD) }
    }

    /// Publishes the event `<source>:<number>` of the tenant `acme`.
    pub(crate) async fn publish(&self, source: &str, number: u32) {
        self.publish_with(source, number, &[]).await;
    }

    /// Publishes an event of another tenant.
    pub(crate) async fn publish_of(&self, tenant: &str, source: &str, number: u32) {
        let json = format!(r#"{{"source_id":"{source}"}}"#);
        self.publish_payload(tenant, source, number, json, &[]).await;
    }

    /// Publishes an event with changed headers.
    pub(crate) async fn publish_with(&self, source: &str, number: u32, changes: &[(&'static str, &str)]) {
        let json = format!(r#"{{"source_id":"{source}","metadata":{{"event_type":"USER_LOGIN"}}}}"#);
        self.publish_payload("acme", source, number, json, changes).await;
    }

    #[expect(clippy::disallowed_methods, reason = "publishes with any headers")]
    pub(crate) async fn publish_payload(
        &self,
        tenant: &str,
        source: &str,
        number: u32,
        json: String,
        changes: &[(&'static str, &str)],
    ) {
        let traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let received_at = DateTime::from_timestamp_millis(1_769_860_800_250).unwrap();
        let context = EventContext::new(tenant.parse().unwrap(), received_at, "req-1", "key:k1", traceparent);
        let event = udm::parse(json.as_bytes()).unwrap();
        let id = format!("{source}:{number}").replace(' ', "_");
        let payload = Bytes::from(json.clone());
        let message = Message::event(&context, &event, &id, payload).unwrap();
        let mut headers = message.headers();
        for (name, value) in changes {
            headers.insert(*name, *value);
        }
        let subject = match changes.iter().find(|(name, _)| *name == SUBJECT_TYPE) {
            Some((_, event_type)) => message.subject().replace("USER_LOGIN", event_type),
            None => message.subject().to_string(),
        };
        let stored = self.admin.publish_with_headers(subject, headers, message.payload().clone()).await;
        stored.unwrap().await.unwrap();
    }

    /// Creates the durable again, as the service does, for these event types.
    pub(crate) async fn define(&self, event_types: &[&str]) {
        self.admin.delete_consumer_from_stream("consumer", "UDM").await.unwrap();
        let url = self.server.url.replace("nats://", &format!("nats://administrator:{PASSWORD}@"));
        let connection = Connection::open(&bus::Config::new(url, "test")).await.unwrap();
        let durables = async || Durables::over(&connection, EventStreams::ONE).await.ok();
        let durables = wait_until("the client is connected", durables).await;
        let event_types = event_types.iter().map(ToString::to_string).collect();
        let filter = DurableFilter { event_types, ..DurableFilter::default() };
        durables.create("consumer", &filter.into(), &SystemEntropy).await.unwrap();
    }

    /// Publishes an event of this type with the subject of an event without a type.
    pub(crate) async fn publish_generic(&self, source: &str, number: u32, event_type: &str) {
        let changes = [("ce-type", event_type), (SUBJECT_TYPE, "GENERIC_EVENT")];
        self.publish_with(source, number, &changes).await;
    }

    pub(crate) async fn info(&self) -> Info {
        let consumer: PullConsumer =
            self.admin.get_consumer_from_stream("consumer", &self.streams[0]).await.unwrap();
        consumer.cached_info().clone()
    }

    pub(crate) async fn wait_until_acknowledged(&self, count: u64) {
        wait_until("the events are acknowledged", async || {
            let info = self.info().await;
            let is_done = info.num_ack_pending == 0 && info.num_pending == 0;
            (info.ack_floor.consumer_sequence >= count && is_done).then_some(())
        })
        .await;
    }

    /// Changes the stream of dead letters.
    pub(crate) async fn limit_dead_letters(&self, change: impl Fn(&mut stream::Config)) {
        let mut config = self.admin.get_stream("UDM_DLQ").await.unwrap().cached_info().config.clone();
        change(&mut config);
        self.admin.update_stream(config).await.unwrap();
    }

    /// Number of dead letters.
    pub(crate) async fn dead_letters(&self) -> u64 {
        self.admin.get_stream("UDM_DLQ").await.unwrap().cached_info().state.messages
    }

    /// Waits for a dead letter. Returns its subject, headers and payload.
    pub(crate) async fn dead_letter(&self, number: u64) -> (String, HeaderMap, Bytes) {
        let stream = self.admin.get_stream("UDM_DLQ").await.unwrap();
        let message =
            wait_until("the dead letter is stored", async || stream.get_raw_message(number).await.ok()).await;
        (message.subject.to_string(), message.headers, message.payload)
    }
}

type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts what ingest does for consumers.
async fn answer_requests(server: &NatsServer, streams: EventStreams) {
    let url = server.url.replace("nats://", &format!("nats://ingest:{PASSWORD}@"));
    let inbox_prefix = Some("_INBOX.ingest".to_owned());
    let config = bus::Config { inbox_prefix, ..bus::Config::new(url, "test") };
    let (tasks, metrics, limits) = (Tasks::default(), Metrics::new("test"), PublishLimits::default());
    let dead_letters =
        Publisher::start(config.clone(), DEAD_LETTER_STREAM, limits, &metrics, &tasks).unwrap();
    dead_letters.ready().await;
    let connection = Connection::open(&config).await.unwrap();
    let rejected = metrics.metric("rejected", "Test", &[]);
    let requests =
        ConsumerRequests { streams, admits: Box::new(|_| true), dead_letters, stream_share: 100, rejected };
    requests.start(config, connection, &tasks).unwrap();
}

/// A consumer that runs until it is stopped or dropped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ConsumerError>>,
}

impl Running {
    pub(crate) fn start<F>(config: Config, handler: impl Fn(Arc<Event>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Self::spawn(|stopped| consumer::run(config, stopped, handler))
    }

    pub(crate) fn start_batches<F>(
        config: Config,
        max: usize,
        handler: impl Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Self::spawn(|stopped| consumer::run_batches(config, max, stopped, handler))
    }

    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    fn spawn<F>(run: impl FnOnce(Stopped) -> F) -> Self
    where
        F: Future<Output = Result<(), ConsumerError>> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(Box::pin(async move { stopped.await.unwrap_or_default() })));
        Self { stop: Some(stop), task }
    }

    pub(crate) fn request_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn stop(mut self) {
        self.request_stop();
        self.stopped().await;
    }

    pub(crate) async fn stopped(&mut self) {
        within(DEADLINE, "the stop", &mut self.task).await.unwrap().unwrap();
    }

    pub(crate) async fn failed(&mut self) -> ConsumerError {
        within(DEADLINE, "the end", &mut self.task).await.unwrap().unwrap_err()
    }

    /// Ends without a chance to acknowledge anything, like a killed process.
    pub(crate) async fn crash(self) {
        self.task.abort();
        self.task.await.unwrap_err();
    }
}

/// Events in the order in which they were handled.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, event: &Event) {
        self.0.lock().push(event.event_id.clone());
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// The numbers of the events of one source.
    pub(crate) fn of(&self, source: &str) -> Vec<u32> {
        let ids = self.ids();
        let numbers = ids.iter().filter_map(|id| id.split_once(':').filter(|(prefix, _)| *prefix == source));
        numbers.map(|(_, number)| number.parse().unwrap()).collect()
    }

    pub(crate) async fn wait_for(&self, count: usize) {
        wait_until("the events are handled", async || (self.ids().len() >= count).then_some(())).await;
    }
}

/// Returns a source in the given half of the partitions.
pub(crate) fn source_in_half(half: u8) -> String {
    let tenant = "acme".parse().unwrap();
    let mut sources = (0..).map(|number| format!("source-{number}"));
    sources.find(|source| EventSubject::new(&tenant, "A", source).unwrap().partition() / 32 == half).unwrap()
}
