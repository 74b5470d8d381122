//! Streams of a real nats-server: missing ones are created, retention and sizes are updated, and other settings are verified.

use std::time::Duration;

use async_nats::jetstream::{
    self,
    stream::{Compression, Config, DiscardPolicy},
};
use bus::{AuditProfile, EventStreams, Profile, StreamDefinition, StreamError, create, ensure, verify};
use bytes::Bytes;
use futures::future::try_join_all;
use testkit::nats::NatsServer;

// Small, because a nats-server rejects streams that the free disk could not hold.
const PROFILE: Profile = Profile::single_server(64 << 20);
const AUDIT: AuditProfile = AuditProfile::single_server(64 << 20);

/// All streams. Each account has a part of them.
fn all(profile: &Profile, audit: &AuditProfile) -> Vec<StreamDefinition> {
    let (mut all, audit): (Vec<StreamDefinition>, Vec<_>) = (profile.into(), audit.into());
    all.extend(audit);
    all
}

async fn broker() -> anyhow::Result<(NatsServer, jetstream::Context)> {
    let server = NatsServer::start().await?;
    let client = bus::connect(&bus::Config::new(&server.url, "test")).await?;
    Ok((server, jetstream::new(client)))
}

async fn config(context: &jetstream::Context, stream: &str) -> anyhow::Result<Config> {
    Ok(context.get_stream(stream).await?.cached_info().config.clone())
}

#[tokio::test]
async fn missing_streams_are_reported_and_can_be_created() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    let missing = verify(&context, &PROFILE).await.unwrap_err();
    assert!(matches!(&missing, StreamError::Missing(name) if name == "UDM_DLQ"), "{missing}");
    let missing = verify(&context, &AUDIT).await.unwrap_err();
    assert!(matches!(&missing, StreamError::Missing(name) if name == "AUDIT"), "{missing}");
    for _ in 0..2 {
        ensure(&context, &PROFILE).await?;
        create(&context, &AUDIT).await?;
    }
    verify(&context, all(&PROFILE, &AUDIT)).await?;
    for (stream, days, bytes) in [
        ("UDM", 3, 64 << 20),
        ("UDM_DLQ", 14, 8 << 20),
        ("AUDIT", 400, 8 << 20),
        ("AUDIT_ANONYMOUS", 7, 1 << 20),
    ] {
        let config = config(&context, stream).await?;
        assert_eq!((config.max_age, config.max_bytes), (Duration::from_hours(days * 24), bytes), "{stream}");
        assert_eq!(config.compression.unwrap_or(Compression::None), Compression::None, "{stream}");
    }
    Ok(())
}

#[tokio::test]
async fn each_of_the_four_streams_is_verified() -> anyhow::Result<()> {
    for stream in ["UDM", "UDM_DLQ", "AUDIT", "AUDIT_ANONYMOUS"] {
        let (_server, context) = broker().await?;
        let all = all(&PROFILE, &AUDIT);
        ensure(&context, all.clone()).await?;
        let mut changed = config(&context, stream).await?;
        changed.discard = match changed.discard {
            DiscardPolicy::New => DiscardPolicy::Old,
            DiscardPolicy::Old => DiscardPolicy::New,
        };
        changed.discard_new_per_subject = false;
        context.update_stream(&changed).await?;
        for result in [verify(&context, all.clone()).await, ensure(&context, all).await] {
            let error = result.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("stream {stream} has the wrong configuration: discard")),
                "{error}"
            );
        }
        assert_eq!(config(&context, stream).await?.discard, changed.discard);
    }
    Ok(())
}

#[tokio::test]
async fn wrong_configuration_is_described_and_not_changed() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    let created = Config {
        name: "UDM".to_owned(),
        subjects: vec!["udm.v1.*.acme.>".to_owned()],
        duplicate_window: Duration::from_mins(1),
        max_messages_per_subject: 5,
        ..Config::default()
    };
    context.create_stream(created).await?;
    let expected = [
        "stream UDM has the wrong configuration",
        r#"subjects: expected ["udm.v1.>"], found ["udm.v1.*.acme.>"]"#,
        "discard: expected New, found Old",
        "max_msgs_per_subject: expected -1, found 5",
        "nats stream edit UDM",
    ];
    let updatable = "duplicate_window: expected at least 120s, found 60s";
    ensure(&context, &PROFILE).await.unwrap_err();
    let error = verify(&context, &PROFILE).await.unwrap_err().to_string();
    for part in expected.into_iter().chain([updatable]) {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("max_age") && !error.contains("max_bytes"), "{error}");
    let error = ensure(&context, &PROFILE).await.unwrap_err().to_string();
    assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    let stored = config(&context, "UDM").await?;
    assert_eq!((stored.subjects[0].as_str(), stored.max_age), ("udm.v1.*.acme.>", Duration::ZERO));
    Ok(())
}

#[tokio::test]
async fn create_changes_no_existing_stream() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    create(&context, &AUDIT).await?;
    let created = config(&context, "AUDIT").await?;
    let other =
        AuditProfile { max_bytes: 32 << 20, max_age: Duration::from_hours(1), compression: true, ..AUDIT };
    create(&context, &other).await?;
    assert_eq!(config(&context, "AUDIT").await?, created);
    let error = create(&context, &AuditProfile { replicas: 3, ..AUDIT }).await.unwrap_err().to_string();
    assert!(error.contains("num_replicas: expected at least 3, found 1"), "{error}");
    assert_eq!(config(&context, "AUDIT").await?, created);
    Ok(())
}

#[tokio::test]
async fn ensure_updates_limits_and_raises_minimums_but_keeps_other_settings() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    ensure(&context, all(&PROFILE, &AUDIT)).await?;
    let mut edited = config(&context, "UDM").await?;
    edited.duplicate_window = Duration::from_mins(1);
    edited.max_message_size = 1024;
    edited.description = Some("of the administrator".to_owned());
    context.update_stream(&edited).await?;
    let profile = Profile {
        max_bytes: 32 << 20,
        max_age: Duration::from_hours(1),
        dead_letter_max_age: Duration::from_hours(2),
        compression: true,
        ..PROFILE
    };
    let audit =
        AuditProfile { max_bytes: 32 << 20, max_age: Duration::from_hours(3), compression: true, ..AUDIT };
    ensure(&context, all(&profile, &audit)).await?;
    verify(&context, all(&profile, &audit)).await?;
    for (stream, hours, bytes) in [("UDM", 1, 32 << 20), ("UDM_DLQ", 2, 4 << 20), ("AUDIT", 3, 4 << 20)] {
        let config = config(&context, stream).await?;
        assert_eq!((config.max_age, config.max_bytes), (Duration::from_hours(hours), bytes), "{stream}");
        assert_eq!(config.compression, Some(Compression::S2), "{stream}");
    }
    let updated = config(&context, "UDM").await?;
    assert_eq!(updated.duplicate_window, Duration::from_mins(2));
    assert_eq!(updated.max_message_size, 256 * 1024 + 16 * 1024);
    assert_eq!(updated.description.as_deref(), Some("of the administrator"));

    let mut larger = updated;
    larger.duplicate_window = Duration::from_mins(5);
    larger.max_message_size = -1;
    context.update_stream(&larger).await?;
    ensure(&context, &profile).await?;
    let kept = config(&context, "UDM").await?;
    assert_eq!((kept.duplicate_window, kept.max_message_size), (Duration::from_mins(5), -1));
    ensure(&context, &PROFILE).await?;
    assert_ne!(config(&context, "UDM").await?.compression, Some(Compression::S2));
    Ok(())
}

#[tokio::test]
async fn a_size_that_the_server_rejects_stops_only_the_creation_of_a_stream() -> anyhow::Result<()> {
    let server = NatsServer::start_with("jetstream { max_file_store: 100MB }").await?;
    let context = jetstream::new(bus::connect(&bus::Config::new(&server.url, "test")).await?);
    let large = Profile { max_bytes: 100 << 20, ..PROFILE };
    let error = ensure(&context, &large).await.unwrap_err();
    let hint = "failed to create stream UDM; SVC_STREAM_MAX_BYTES is at most 75 % of max_file_store";
    assert!(matches!(error, StreamError::Create { .. }) && error.to_string().starts_with(hint), "{error}");

    // Three quarters fit with all other streams.
    let largest = Profile { max_bytes: 75_000_000, ..PROFILE };
    ensure(&context, all(&largest, &AuditProfile { max_bytes: 75_000_000, ..AUDIT })).await?;
    ensure(&context, &Profile { max_age: Duration::from_hours(1), ..large }).await?;
    assert_eq!(config(&context, "UDM").await?.max_bytes, 75_000_000);
    Ok(())
}

#[tokio::test]
async fn a_consumer_with_10000_dead_letters_of_a_tenant_can_store_no_more_and_others_can()
-> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    let without_limit = Config {
        max_messages_per_subject: -1,
        discard_new_per_subject: false,
        ..created(&context, "UDM_DLQ").await?
    };
    context.update_stream(&without_limit).await?;
    ensure(&context, &PROFILE).await?;
    for _ in 0..10 {
        let stored = (0..1_000).map(|_| publish(&context, "udm.dlq.v1.acme.archive"));
        try_join_all(stored).await?;
    }
    publish(&context, "udm.dlq.v1.acme.archive").await.unwrap_err();
    publish(&context, "udm.dlq.v1.acme.search").await?;
    publish(&context, "udm.dlq.v1.globex.archive").await?;
    Ok(())
}

/// Creates all streams and returns the configuration of one.
async fn created(context: &jetstream::Context, stream: &str) -> anyhow::Result<Config> {
    ensure(context, &PROFILE).await?;
    config(context, stream).await
}

#[expect(clippy::disallowed_methods, reason = "publishes to any stream")]
async fn publish(context: &jetstream::Context, subject: &'static str) -> anyhow::Result<()> {
    context.publish(subject, Bytes::new()).await?.await?;
    Ok(())
}

#[tokio::test]
async fn fewer_replicas_than_declared_are_rejected() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    ensure(&context, &PROFILE).await?;
    let profile = Profile { replicas: 3, ..PROFILE };
    let error = verify(&context, &profile).await.unwrap_err().to_string();
    assert!(error.contains("num_replicas: expected at least 3, found 1"), "{error}");
    let error = ensure(&context, &profile).await.unwrap_err();
    assert!(matches!(&error, StreamError::Update { stream, .. } if stream == "UDM_DLQ"), "{error}");
    Ok(())
}

#[tokio::test]
async fn verify_accepts_other_limits() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    ensure(&context, &PROFILE).await?;
    let other =
        Profile { max_bytes: 1 << 20, max_age: Duration::from_hours(1), compression: true, ..PROFILE };
    verify(&context, &other).await?;
    assert_eq!(config(&context, "UDM").await?.max_bytes, 64 << 20);
    Ok(())
}

#[tokio::test]
async fn another_number_of_streams_is_rejected_while_a_stream_has_the_subjects() -> anyhow::Result<()> {
    for (before, after) in [(1, 4), (4, 1), (2, 4)] {
        let (_server, context) = broker().await?;
        let profile = |count| Profile { streams: EventStreams::new(count).unwrap(), ..PROFILE };
        ensure(&context, &profile(before)).await?;
        verify(&context, &profile(before)).await?;
        for result in [ensure(&context, &profile(after)).await, verify(&context, &profile(after)).await] {
            let error = result.unwrap_err();
            let StreamError::Division { found, expected, .. } = &error else { panic!("{error}") };
            assert_eq!(*found, profile(before).streams.names());
            assert_eq!(*expected, profile(after).streams.names());
            assert!(
                error.to_string().contains(&format!("SVC_STREAMS={after} needs {}", expected[0])),
                "{error}"
            );
        }
        assert!(context.get_stream(&profile(after).streams.names()[0]).await.is_err());

        for (index, stream) in profile(before).streams.names().iter().enumerate() {
            let mut retired = config(&context, stream).await?;
            retired.subjects = vec![format!("udm.retired.{index}")];
            context.update_stream(&retired).await?;
        }
        ensure(&context, &profile(after)).await?;
        verify(&context, &profile(after)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn unreachable_server_is_not_a_missing_stream() -> anyhow::Result<()> {
    let (mut server, context) = broker().await?;
    server.stop();
    let error = verify(&context, &PROFILE).await.unwrap_err();
    assert!(matches!(error, StreamError::Unreachable { .. }), "{error}");
    Ok(())
}
