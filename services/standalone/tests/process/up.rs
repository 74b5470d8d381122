//! `svc-standalone up` and `down`

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use standalone::run_file::RunFile;

use super::installation::{Installation, Run, is_alive, send, wait_until};

#[expect(clippy::disallowed_methods, reason = "publishes to a stream of this test")]
async fn store(run: &Run, value: i32) {
    let mut database = PgConnection::connect(&run.run_file.database_url).await.unwrap();
    sqlx::query("create table if not exists public.stored (value integer)")
        .execute(&mut database)
        .await
        .unwrap();
    sqlx::query("insert into public.stored values ($1)").bind(value).execute(&mut database).await.unwrap();
    let jetstream = jetstream(&run.run_file).await;
    let stream = async_nats::jetstream::stream::Config { name: "stored".into(), ..Default::default() };
    jetstream.create_stream(stream).await.unwrap();
    jetstream.publish("stored", value.to_string().into()).await.unwrap().await.unwrap();
}

async fn jetstream(run_file: &RunFile) -> async_nats::jetstream::Context {
    async_nats::jetstream::new(bus::connect(&bus::Config::new(&run_file.nats_url, "test")).await.unwrap())
}

async fn load(run_file: &RunFile) -> (i32, String) {
    let mut database = PgConnection::connect(&run_file.database_url).await.unwrap();
    let value = sqlx::query_scalar("select value from public.stored").fetch_one(&mut database).await.unwrap();
    let stream = jetstream(run_file).await.get_stream("stored").await.unwrap();
    let message = stream.get_last_raw_message_by_subject("stored").await.unwrap();
    (value, String::from_utf8(message.payload.to_vec()).unwrap())
}

#[tokio::test]
async fn a_run_logs_no_warning_leaves_no_process_and_the_next_run_has_its_data_and_ports() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let installation = Installation::new();
        let mut run = installation.up("data");
        store(&run, 17).await;
        run.send(signal);
        assert!(run.wait().success(), "{signal:?}");
        assert!(run.processes().iter().all(|pid| !is_alive(*pid)), "{signal:?}");
        assert!(!installation.path("standalone.json").exists(), "stale run file after {signal:?}");
        let output = installation.output();
        assert!(
            !output.contains("timestamp"),
            "a first run logs something that is no concern of a person:\n{output}"
        );

        let mut again = installation.up("data");
        assert_eq!(load(&again.run_file).await, (17, "17".into()));
        assert_eq!(again.run_file.database_url, run.run_file.database_url);
        assert_eq!(again.run_file.nats_url, run.run_file.nats_url);
        assert!(installation.down("data").contains("Stopped"));
        assert!(again.wait().success());
    }
}

#[test]
fn an_invalid_configuration_is_reported_before_anything_is_created() {
    let installation = Installation::new();
    let invalid = [
        ("SVC_LOG", "inf"),
        ("SVC_LIMIT_LOGIN", "many"),
        ("SVC_LISTEN_ADMIN", "9090"),
        ("SVC_SESSION_IDLE", "1s"),
    ];
    let output = installation.up_command("data", 0).envs(invalid).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    for (name, value) in invalid {
        assert_eq!(stderr.matches(&format!("{name}={value}")).count(), 1, "{stderr}");
    }
    assert!(!installation.path("data").exists());
}

#[tokio::test]
async fn the_run_file_is_readable_by_its_owner_only() {
    let installation = Installation::new();
    let run = installation.up("data");
    let file = installation.path("standalone.json");
    assert_eq!(RunFile::load(&file).unwrap(), run.run_file);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(installation.path("data").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(run.run_file.platform_token_file.exists());
    assert!(run.run_file.mail_dir.is_dir());
    let output = installation.output();
    assert!(output.contains(&run.run_file.base_url), "{output}");
}

#[tokio::test]
async fn a_killed_server_is_restarted_with_its_data_and_the_run_file_is_updated() {
    let installation = Installation::new();
    let run = installation.up("data");
    store(&run, 23).await;
    let before = run.run_file.children;
    send(before.postgres, Signal::KILL);
    send(before.nats, Signal::KILL);
    let run_file = || RunFile::load(&installation.path("standalone.json")).unwrap();
    wait_until("both servers are restarted", || {
        let now = run_file().children;
        now.postgres != before.postgres && now.nats != before.nats
    });
    assert_eq!(load(&run.run_file).await, (23, "23".into()));
    assert!(is_alive(run_file().children.postgres) && is_alive(run_file().children.nats));
}

#[tokio::test]
async fn the_next_run_recovers_from_a_killed_run_with_and_without_running_servers() {
    let installation = Installation::new();
    let mut orphaned = installation.up("data");
    store(&orphaned, 42).await;
    orphaned.send(Signal::KILL);
    orphaned.wait();
    let [_, postgres, nats] = orphaned.processes();
    assert!(is_alive(postgres) && is_alive(nats), "the servers have their own process groups");

    let mut tree_killed = installation.up("data");
    assert!(!is_alive(postgres) && !is_alive(nats));
    assert_eq!(load(&tree_killed.run_file).await, (42, "42".into()));
    assert_eq!(tree_killed.run_file.database_url, orphaned.run_file.database_url, "the port has changed");
    for pid in tree_killed.processes() {
        send(pid, Signal::KILL);
    }
    tree_killed.wait();

    let run = installation.up("data");
    assert_eq!(load(&run.run_file).await, (42, "42".into()));
}

#[tokio::test]
async fn a_second_run_with_the_same_data_reports_the_first_and_changes_nothing() {
    let installation = Installation::new();
    let run = installation.up("data");
    let second = installation.up_command("data", 0).output().unwrap();
    assert!(second.status.success());
    let stdout = String::from_utf8(second.stdout).unwrap();
    assert!(stdout.contains("Already running at"), "{stdout}");
    assert!(stdout.contains(&run.run_file.base_url), "{stdout}");
    assert!(stdout.contains(&run.run_file.pid.to_string()), "{stdout}");
    assert!(run.processes().iter().all(|pid| is_alive(*pid)));
    assert_eq!(RunFile::load(&installation.path("standalone.json")).unwrap(), run.run_file);
}

#[tokio::test]
async fn a_run_with_other_data_does_not_change_the_run_file_of_the_first() {
    let installation = Installation::new();
    let run = installation.up("data");
    let mut other = installation.up("other");
    assert_ne!(other.run_file.database_url, run.run_file.database_url);
    assert_eq!(RunFile::load(&installation.path("standalone.json")).unwrap(), run.run_file);
    let output = installation.output();
    assert!(output.contains("belongs to another run"), "{output}");
    other.send(Signal::TERM);
    assert!(other.wait().success());
    assert_eq!(RunFile::load(&installation.path("standalone.json")).unwrap(), run.run_file);
}

#[test]
fn a_taken_public_port_is_reported_before_anything_is_started() {
    let installation = Installation::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = installation.up_command("data", port).output().unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&port.to_string()) && stderr.contains("make up PORT="), "{stderr}");
    assert!(!installation.path("data/postgres").exists());
}

#[test]
fn down_succeeds_if_nothing_is_running() {
    let installation = Installation::new();
    assert!(installation.down("data").contains("Nothing is running"));
}
