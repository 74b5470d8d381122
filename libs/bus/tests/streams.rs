//! Streams of a real nats-server: missing ones are created, existing ones are verified and never changed.

use async_nats::jetstream::{self, stream::Config};
use bus::{Durability, Profile, StreamError, anonymous_audit, audit, dead_letters, ensure, events, verify};
use testkit::nats::NatsServer;

const PROFILE: Profile = Profile { durability: Durability::Dev, replicas: 1, max_bytes: 1 << 30 };

async fn broker() -> anyhow::Result<(NatsServer, jetstream::Context)> {
    let server = NatsServer::start().await?;
    let client = bus::connect(&bus::Config::new(&server.url, "test")).await?;
    Ok((server, jetstream::new(client)))
}

#[tokio::test]
async fn missing_stream_is_reported_and_can_be_created() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    for definition in [events(&PROFILE), dead_letters(&PROFILE), audit(&PROFILE), anonymous_audit(&PROFILE)] {
        let missing = verify(&context, &definition).await.unwrap_err();
        assert!(matches!(&missing, StreamError::Missing(name) if name == definition.name()), "{missing}");
        ensure(&context, &definition).await?;
        verify(&context, &definition).await?;
        ensure(&context, &definition).await?;
    }
    Ok(())
}

#[tokio::test]
async fn wrong_configuration_is_described_and_not_changed() -> anyhow::Result<()> {
    let (_server, context) = broker().await?;
    let config = Config {
        name: "UDM".to_owned(),
        subjects: vec!["udm.v1.*.acme.>".to_owned()],
        max_bytes: 1 << 30,
        ..Config::default()
    };
    context.create_stream(config).await?;
    let error = ensure(&context, &events(&PROFILE)).await.unwrap_err();
    let text = error.to_string();
    for part in [
        "stream UDM has the wrong configuration",
        r#"subjects: expected ["udm.v1.>"], found ["udm.v1.*.acme.>"]"#,
        "discard: expected New, found Old",
        "max_age: expected 259200s, found 0ns",
        "max_msg_size: expected 278528, found -1",
        "compression: expected Some(S2), found ",
        "nats stream edit UDM",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("max_bytes"), "{text}");
    let stored = context.get_stream("UDM").await?;
    assert_eq!(stored.cached_info().config.subjects, ["udm.v1.*.acme.>"]);
    Ok(())
}

#[tokio::test]
async fn unreachable_server_is_not_a_missing_stream() -> anyhow::Result<()> {
    let (mut server, context) = broker().await?;
    server.stop();
    let error = verify(&context, &events(&PROFILE)).await.unwrap_err();
    assert!(matches!(error, StreamError::Unreachable { .. }), "{error}");
    Ok(())
}
