//! The streams of audit events: `svc-identity streams` with the real binary, and their creation at start.

use std::process::{Command, Output};

use async_nats::jetstream::{self, Context};
use serde_json::Value;
use testkit::NatsServer;
use testsystem::TestSystem;

fn streams(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-identity"));
    command.arg("streams").args(arguments).env_clear().env("SVC_STREAM_MAX_BYTES", "64MiB");
    command.env("SVC_STREAM_REPLICAS", "1").envs(environment.iter().copied());
    command.output().unwrap()
}

async fn administrator(nats: &NatsServer) -> Context {
    jetstream::new(nats.connect("audit-administrator").await.unwrap())
}

#[tokio::test]
async fn an_administrator_creates_and_changes_the_streams_as_printed() {
    let output = streams(&["print"], &[]);
    let printed: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = printed.iter().map(|stream| stream["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["AUDIT", "AUDIT_ANONYMOUS"]);

    let server = NatsServer::start_with_accounts().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    std::fs::write(&file, server.url_of("audit-administrator")).unwrap();
    for (max_age, hours) in [("400d", 9600), ("30d", 720)] {
        let apply = ["apply", "--nats-url-file", file.to_str().unwrap()];
        let output = streams(&apply, &[("SVC_AUDIT_MAX_AGE", max_age)]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"2 streams exist with this configuration\n");
        let stream = administrator(&server).await.get_stream("AUDIT").await.unwrap();
        assert_eq!(stream.cached_info().config.max_age, std::time::Duration::from_hours(hours));
        assert_eq!(stream.cached_info().config.max_bytes, 8 << 20);
    }
    // The user of the service cannot change an existing stream.
    let own = server.url_of("identity");
    let output = streams(&["apply"], &[("SVC_NATS_URL", own.as_str()), ("SVC_AUDIT_MAX_AGE", "1d")]);
    assert!(!output.status.success(), "{output:?}");
}

#[tokio::test]
async fn the_service_creates_the_streams_with_its_settings() {
    let system = TestSystem::start_with(&[("SVC_AUDIT_MAX_AGE", "31d")]).await.unwrap();
    let administrator = administrator(&system.nats).await;
    for (stream, days, bytes) in [("AUDIT", 31, 8 << 20), ("AUDIT_ANONYMOUS", 7, 1 << 20)] {
        let config = administrator.get_stream(stream).await.unwrap().cached_info().config.clone();
        assert_eq!(
            (config.max_age, config.max_bytes),
            (std::time::Duration::from_hours(days * 24), bytes),
            "{stream}"
        );
    }
}
