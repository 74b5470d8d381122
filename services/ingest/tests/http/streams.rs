//! `svc-ingest streams` with the real binary and a real nats-server.

use std::process::{Command, Output};

use serde_json::Value;
use testkit::NatsServer;

fn streams(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-ingest"));
    command.arg("streams").args(arguments).env_clear().env("SVC_STREAM_MAX_BYTES", "64MiB");
    command.env("SVC_STREAM_REPLICAS", "1").env("SVC_STREAMS", "2").envs(environment.iter().copied());
    command.output().unwrap()
}

#[tokio::test]
async fn streams_are_created_by_an_administrator_as_printed() {
    let output = streams(&["print"], &[]);
    let printed: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = printed.iter().map(|stream| stream["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["UDM_DLQ", "UDM_00_31", "UDM_32_63"]);
    assert_eq!(printed[1]["max_bytes"], 32 << 20);

    let server = NatsServer::start_with_accounts().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    std::fs::write(&file, format!("{}\n", server.url)).unwrap();
    // The URL of ingest is not used.
    let unused = [("SVC_NATS_URL", "nats://127.0.0.1:1")];
    for _ in 0..2 {
        let output = streams(&["apply", "--nats-url-file", file.to_str().unwrap()], &unused);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"3 streams exist with this configuration\n");
    }
    let context = async_nats::jetstream::new(server.connect("administrator").await.unwrap());
    for stream in printed {
        let found =
            context.get_stream(stream["name"].as_str().unwrap()).await.unwrap().cached_info().config.clone();
        assert_eq!(serde_json::to_value(found.subjects).unwrap(), stream["subjects"]);
        assert_eq!(found.max_bytes, stream["max_bytes"].as_i64().unwrap());
    }
}

#[test]
fn a_missing_size_and_an_unreachable_server_are_errors() {
    let output = streams(&["print"], &[("SVC_STREAM_MAX_BYTES", "")]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let output = streams(&["apply"], &[("SVC_NATS_URL", "nats://127.0.0.1:1")]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("failed to connect to NATS"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
