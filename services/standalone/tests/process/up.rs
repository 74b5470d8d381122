use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use standalone::run_file::RunFile;

use super::installation::{Installation, Run, is_alive, send, wait_until};

#[expect(clippy::disallowed_methods, reason = "a stream of the test's own")]
async fn remember(run: &Run, what: i32) {
    let mut database = PgConnection::connect(&run.run_file.database_url).await.unwrap();
    sqlx::query("create table if not exists public.remembered (what integer)")
        .execute(&mut database)
        .await
        .unwrap();
    sqlx::query("insert into public.remembered values ($1)").bind(what).execute(&mut database).await.unwrap();
    let jetstream = jetstream(&run.run_file).await;
    let stream = async_nats::jetstream::stream::Config { name: "remembered".into(), ..Default::default() };
    jetstream.create_stream(stream).await.unwrap();
    jetstream.publish("remembered", what.to_string().into()).await.unwrap().await.unwrap();
}

async fn jetstream(run_file: &RunFile) -> async_nats::jetstream::Context {
    async_nats::jetstream::new(bus::connect(&bus::Config::new(&run_file.nats_url, "test")).await.unwrap())
}

async fn remembered(run_file: &RunFile) -> (i32, String) {
    let mut database = PgConnection::connect(&run_file.database_url).await.unwrap();
    let what =
        sqlx::query_scalar("select what from public.remembered").fetch_one(&mut database).await.unwrap();
    let stream = jetstream(run_file).await.get_stream("remembered").await.unwrap();
    let message = stream.get_last_raw_message_by_subject("remembered").await.unwrap();
    (what, String::from_utf8(message.payload.to_vec()).unwrap())
}

#[tokio::test]
async fn a_stopped_run_leaves_no_process_and_the_next_finds_its_data_and_ports() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let installation = Installation::new();
        let mut run = installation.up("data");
        remember(&run, 17).await;
        run.send(signal);
        assert!(run.wait().success(), "{signal:?}");
        assert!(run.processes().iter().all(|pid| !is_alive(*pid)), "{signal:?}");
        assert!(!installation.path("standalone.json").exists(), "stale run_file after {signal:?}");

        let mut again = installation.up("data");
        assert_eq!(remembered(&again.run_file).await, (17, "17".into()));
        assert_eq!(again.run_file.database_url, run.run_file.database_url);
        assert_eq!(again.run_file.nats_url, run.run_file.nats_url);
        assert!(installation.down("data").contains("stopped"));
        assert!(again.wait().success());
    }
}

#[tokio::test]
async fn the_facts_stand_where_scripts_look_and_only_the_owner_reads_them() {
    let installation = Installation::new();
    let run = installation.up("data");
    let file = installation.path("standalone.json");
    assert_eq!(RunFile::load(&file).unwrap(), run.run_file);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(installation.path("data").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(run.run_file.platform_token_file.exists());
    assert!(run.run_file.mail_dir.is_dir());
    let output = std::fs::read_to_string(installation.path("output")).unwrap();
    assert!(output.contains(&run.run_file.base_url), "{output}");
}

#[tokio::test]
async fn a_killed_server_comes_back_with_its_data_and_the_facts_follow() {
    let installation = Installation::new();
    let run = installation.up("data");
    remember(&run, 23).await;
    let before = run.run_file.children;
    send(before.postgres, Signal::KILL);
    send(before.nats, Signal::KILL);
    let run_file = || RunFile::load(&installation.path("standalone.json")).unwrap();
    wait_until("both are back", || {
        let now = run_file().children;
        now.postgres != before.postgres && now.nats != before.nats
    });
    assert_eq!(remembered(&run.run_file).await, (23, "23".into()));
    assert!(is_alive(run_file().children.postgres) && is_alive(run_file().children.nats));
}

#[tokio::test]
async fn a_killed_run_is_taken_up_by_the_next_whether_its_servers_live_on_or_not() {
    let installation = Installation::new();
    let mut orphaned = installation.up("data");
    remember(&orphaned, 42).await;
    orphaned.send(Signal::KILL);
    orphaned.wait();
    let [_, postgres, nats] = orphaned.processes();
    assert!(is_alive(postgres) && is_alive(nats), "they are in groups of their own");

    let mut tree_killed = installation.up("data");
    assert!(!is_alive(postgres) && !is_alive(nats));
    assert_eq!(remembered(&tree_killed.run_file).await, (42, "42".into()));
    assert_eq!(tree_killed.run_file.database_url, orphaned.run_file.database_url, "the port was free again");
    for pid in tree_killed.processes() {
        send(pid, Signal::KILL);
    }
    tree_killed.wait();

    let run = installation.up("data");
    assert_eq!(remembered(&run.run_file).await, (42, "42".into()));
}

#[tokio::test]
async fn a_second_run_of_the_same_data_says_so_and_does_no_harm() {
    let installation = Installation::new();
    let run = installation.up("data");
    let second = installation.up_command("data", 0).output().unwrap();
    assert!(second.status.success());
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(said.contains("already running at"), "{said}");
    assert!(said.contains(&run.run_file.base_url) && said.contains(&run.run_file.pid.to_string()), "{said}");
    assert!(run.processes().iter().all(|pid| is_alive(*pid)));
    assert_eq!(RunFile::load(&installation.path("standalone.json")).unwrap(), run.run_file);
}

#[tokio::test]
async fn a_run_of_other_data_leaves_the_facts_of_the_first_alone() {
    let installation = Installation::new();
    let run = installation.up("data");
    let mut other = installation.up("other");
    assert_ne!(other.run_file.database_url, run.run_file.database_url);
    assert_eq!(RunFile::load(&installation.path("standalone.json")).unwrap(), run.run_file);
    let output = std::fs::read_to_string(installation.path("output")).unwrap();
    assert!(output.contains("belongs to another run"), "{output}");
    other.send(Signal::TERM);
    assert!(other.wait().success());
    assert_eq!(RunFile::load(&installation.path("standalone.json")).unwrap(), run.run_file);
}

#[test]
fn a_taken_public_port_is_told_before_anything_is_started() {
    let installation = Installation::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = installation.up_command("data", port).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&port.to_string()) && said.contains("make up PORT="), "{said}");
    assert!(!installation.path("data/postgres").exists());
}

#[test]
fn nothing_to_stop_is_no_failure() {
    let installation = Installation::new();
    assert!(installation.down("data").contains("nothing runs"));
}
