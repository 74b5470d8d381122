//! One and several streams of events with the real binaries, and the change from one to several.

use std::collections::HashMap;

use async_nats::jetstream::{self, stream::Config};
use bus::{EventStreams, EventSubject};
use contract::paths::Upstream;
use e2e::{ApiUser, Installation, Services, output_of};
use serde_json::{Value, json};
use testkit::wait_until;

const EVENTS: usize = 200;

fn names(count: u8) -> Vec<String> {
    EventStreams::new(count).unwrap().names()
}

async fn broker(nats_url: &str) -> jetstream::Context {
    jetstream::new(bus::connect(&bus::Config::new(nats_url, "e2e")).await.unwrap())
}

#[expect(clippy::disallowed_methods, reason = "any stored message")]
async fn store_message(context: &jetstream::Context) {
    context.publish("udm.v1.00.acme.LOGIN", "{}".into()).await.unwrap().await.unwrap();
}

/// Returns the stream and the partition of each stored event by its id.
async fn stored(context: &jetstream::Context, streams: &[String]) -> HashMap<String, (usize, u8)> {
    let mut stored = HashMap::new();
    for (index, name) in streams.iter().enumerate() {
        let stream = context.get_stream(name).await.unwrap();
        let state = &stream.cached_info().state;
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let subject: EventSubject = message.subject.parse().unwrap();
            let id = message.headers.get("ce-id").unwrap().to_string();
            assert_eq!(stored.insert(id, (index, subject.partition())), None);
        }
    }
    stored
}

#[tokio::test]
async fn events_are_stored_once_in_the_stream_of_their_partition() {
    for count in [1, 4] {
        let number = count.to_string();
        let installation = Installation::new(&[("SVC_STREAMS", number.as_str())]);
        let run = installation.up().await;
        let user = ApiUser::first_admin(&run.run_file).await;
        let events: Vec<_> = (0..EVENTS)
            .map(|id| json!({ "source_id": format!("fw-{}", id % 50), "event_id": format!("e{id}") }))
            .collect();
        for duplicate in [false, true] {
            let sent: Value = user.client.post("/events/batch", &events).await.expect(202);
            let results = sent["results"].as_array().unwrap();
            assert!(results.iter().all(|result| result["duplicate"] == duplicate), "{count}: {sent}");
        }

        let streams = names(count);
        let stored = stored(&broker(&run.run_file.nats_url).await, &streams).await;
        assert_eq!(stored.len(), EVENTS);
        for (stream, partition) in stored.values() {
            assert_eq!(*stream, usize::from(partition / (64 / count)), "partition {partition}");
        }
        for (index, name) in streams.iter().enumerate() {
            assert!(stored.values().any(|(stream, _)| *stream == index), "{name} is empty");
        }
    }
}

#[tokio::test]
async fn another_number_of_streams_is_rejected_until_the_old_stream_has_another_subject() {
    let services = Services::prepare().await;
    let context = broker(&services.nats.url).await;
    services.start(Upstream::Ingest).wait_until_ready().await;
    store_message(&context).await;

    let mut ingest = services.start_with(Upstream::Ingest, &[("SVC_STREAMS", "4")]);
    let expected = "the subjects of events belong to UDM, but SVC_STREAMS=4 needs UDM_00_15, UDM_16_31";
    wait_until("the error is logged", async || ingest.process.output().contains(expected).then_some(()))
        .await;
    assert!(!ingest.is_ready().await);
    assert!(context.get_stream("UDM_00_15").await.is_err());
    let old = context.get_stream("UDM").await.unwrap().cached_info().clone();
    assert_eq!((old.state.messages, old.config.subjects), (1, vec!["udm.v1.>".to_owned()]));

    let retired = Config { subjects: vec!["udm.retired.UDM".to_owned()], ..old.config };
    context.update_stream(&retired).await.unwrap();
    ingest.wait_until_ready().await;
    for name in names(4) {
        context.get_stream(&name).await.unwrap();
    }
    assert_eq!(context.get_stream("UDM").await.unwrap().cached_info().state.messages, 1);
    assert!((ingest.metric(r#"svc_publish_available{stream="UDM_48_63"}"#).await - 1.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn a_command_succeeds_if_the_reader_of_its_output_has_closed_the_pipe() {
    let services = Services::prepare().await;
    for (service, arguments) in
        [(Upstream::Ingest, &["streams", "print"][..]), (Upstream::Identity, &["platform-token"])]
    {
        let mut command = services.command(service);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // `output_of` would replace the pipe.
        let output = command.args(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[tokio::test]
async fn with_verify_identity_is_ready_and_an_administrator_creates_the_streams_of_audit_events() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let mut identity = services.start_with(Upstream::Identity, &[("SVC_STREAM_MODE", "verify")]);
    identity.wait_until_ready().await;
    let expected = "stream AUDIT does not exist: create it, or set SVC_STREAM_MODE=ensure";
    wait_until("the error is logged", async || identity.process.output().contains(expected).then_some(()))
        .await;
    let available = r#"svc_publish_available{stream="AUDIT"}"#;
    assert!(identity.metric(available).await.abs() < f64::EPSILON);

    let mut apply = services.command(Upstream::Identity);
    apply.args(["streams", "apply"]).env("SVC_NATS_URL", services.nats.url_of("audit-administrator"));
    let output = output_of(apply).await;
    assert!(output.status.success(), "{output:?}");
    wait_until("audit events can be published", async || {
        (identity.metric(available).await > 0.0).then_some(())
    })
    .await;
}
