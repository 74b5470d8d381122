//! `svc-standalone with-servers`

use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;

use super::installation::{binary, is_alive, send, tools_file, wait_until};

/// `with-servers` with a separate temporary directory, so that a test can check that nothing is left.
fn with_servers(temp: &TempDir, script: &str) -> Command {
    let mut command = binary();
    command.env("TMPDIR", temp.path()).arg("with-servers").arg("--tools").arg(tools_file());
    command.args(["--", "sh", "-c", script]);
    command
}

fn run(temp: &TempDir, script: &str) -> Output {
    with_servers(temp, script).output().unwrap()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// The number of processes with the directory in their command line.
fn processes_below(dir: &Path) -> usize {
    let path = dir.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&path)).count()
}

#[test]
fn the_command_gets_the_servers_and_its_exit_code_is_returned() {
    let temp = tempfile::tempdir().unwrap();
    let output = run(
        &temp,
        r#"test -x "$SVC_TEST_NATS_SERVER" && test -x "$SVC_TEST_POSTGRES_BIN/postgres" || exit 1
           echo "$SVC_TEST_DATABASE_URL $SVC_TEST_NATS_URL"; exit 7"#,
    );
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let (database, nats) = stdout.trim().split_once(' ').unwrap();
    assert!(database.starts_with("postgres://postgres:"), "{stdout}");
    assert!(nats.starts_with("nats://administrator:"), "{stdout}");
    assert!(is_empty(temp.path()));
    assert_eq!(processes_below(temp.path()), 0);
}

#[test]
fn a_signal_stops_the_command_and_all_its_processes() {
    for signal in [Signal::INT, Signal::TERM] {
        let temp = tempfile::tempdir().unwrap();
        let started = temp.path().join("started");
        let script = format!("sleep 1000 & echo $! > {0}.part; mv {0}.part {0}; wait", started.display());
        let mut child = with_servers(&temp, &script).spawn().unwrap();
        wait_until("the command runs", || started.exists());
        let sleeper: i32 = std::fs::read_to_string(&started).unwrap().trim().parse().unwrap();
        assert!(is_alive(sleeper));
        send(i32::try_from(child.id()).unwrap(), signal);
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal.as_raw()));
        wait_until("the child of the command exits", || !is_alive(sleeper));
        std::fs::remove_file(&started).unwrap();
        assert!(is_empty(temp.path()), "{signal:?}");
        assert_eq!(processes_below(temp.path()), 0, "{signal:?}");
    }
}

#[tokio::test]
async fn the_next_run_removes_what_a_killed_run_left() {
    let temp = tempfile::tempdir().unwrap();
    let started = temp.path().join("started");
    let script = format!(
        "echo $$ $SVC_TEST_DATABASE_URL > {0}.part; mv {0}.part {0}; exec sleep 1000",
        started.display()
    );
    let mut child = with_servers(&temp, &script).spawn().unwrap();
    wait_until("the command runs", || started.exists());
    let line = std::fs::read_to_string(&started).unwrap();
    let (command, url) = line.trim().split_once(' ').unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    send(command.parse().unwrap(), Signal::KILL);
    assert!(PgConnection::connect(url).await.is_ok(), "Postgres still runs");
    std::fs::remove_file(&started).unwrap();

    assert!(run(&temp, "true").status.success());
    assert!(is_empty(temp.path()));
    assert_eq!(processes_below(temp.path()), 0);
}

#[test]
fn a_missing_command_is_reported_and_nothing_is_left() {
    let temp = tempfile::tempdir().unwrap();
    let mut command = binary();
    command.env("TMPDIR", temp.path()).arg("with-servers").arg("--tools").arg(tools_file());
    let output = command.args(["--", "/no/such/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/no/such/program"));
    assert!(is_empty(temp.path()));
}
