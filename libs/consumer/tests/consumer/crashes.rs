//! Handlers that end the process. The consumer is a separate process, which the test starts again after each crash.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use consumer::{Config, Event, Failure};
use tempfile::TempDir;
use testkit::{DEADLINE, wait_until, within};
use tokio::process::Child;

use super::broker::{Broker, PASSWORD};

/// Name of the test that is the process.
const PROCESS: &str = "consumer::crashes::the_process_of_a_consumer";

/// What the handler of the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Aborts for the event with the number 1 of a source `poison-…`, and logs the others.
    Abort,
    /// Logs the event and blocks until the process is killed.
    Block,
    /// Logs all events.
    Log,
}

/// Not a test, but the process that the tests start, with the address of the broker, a file for its log, and a mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a process of a test")]
async fn the_process_of_a_consumer() {
    let variables = ["CRASH_TEST_NATS_URL", "CRASH_TEST_LOG", "CRASH_TEST_MODE"].map(std::env::var);
    let [Ok(url), Ok(log), Ok(mode)] = variables else { return };
    let modes = [Mode::Abort, Mode::Block, Mode::Log];
    let mode = modes.into_iter().find(|known| mode == format!("{known:?}")).unwrap();
    let log = Arc::new(OpenOptions::new().append(true).open(log).unwrap());
    let config = Config::new(url, "consumer", PASSWORD);
    let stop = consumer::shutdown_signal();
    let run = consumer::run(config, stop, move |event| handle(event, Arc::clone(&log), mode));
    run.await.unwrap();
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn handle(event: Arc<Event>, log: Arc<File>, mode: Mode) -> Result<(), Failure> {
    if mode == Mode::Abort && event.event_id.starts_with("poison") && event.event_id.ends_with(":1") {
        std::process::abort();
    }
    // One call, because other threads write too.
    (&*log).write_all(format!("{}\n", event.event_id).as_bytes()).unwrap();
    if mode == Mode::Block {
        loop {
            std::thread::park();
        }
    }
    Ok(())
}

/// A log of the process.
struct LogFile {
    path: PathBuf,
    _home: TempDir,
}

impl LogFile {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        File::create(&path).unwrap();
        Self { path, _home: home }
    }

    /// The numbers of the events of a source, each once, in the order in which they were handled first.
    fn of(&self, source: &str) -> Vec<u32> {
        let (lines, prefix) = (read_to_string(&self.path).unwrap(), format!("{source}:"));
        let mut numbers = Vec::new();
        for number in lines.lines().filter_map(|id| id.strip_prefix(&prefix)) {
            let number = number.parse().unwrap();
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers
    }

    fn lines(&self) -> usize {
        read_to_string(&self.path).unwrap().lines().count()
    }
}

fn start(broker: &Broker, log: &LogFile, mode: Mode) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", PROCESS, "--nocapture"]).env("CRASH_TEST_MODE", format!("{mode:?}"));
    command.env("CRASH_TEST_NATS_URL", &broker.server.url).env("CRASH_TEST_LOG", &log.path);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap()
}

async fn wait_until_all_are_acknowledged(broker: &Broker) {
    wait_until("all events are acknowledged", async || {
        let info = broker.info().await;
        (info.num_pending == 0 && info.num_ack_pending == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn of_the_events_in_flight_only_those_that_end_the_process_become_dead_letters() {
    let broker = Broker::start().await;
    let sources = ["a", "poison-a", "b", "poison-b", "c"];
    for number in 0..6 {
        for source in sources {
            broker.publish(source, number).await;
        }
    }
    let log = LogFile::new();
    let crashes = async {
        for crashes in 0.. {
            let status = start(&broker, &log, Mode::Abort).wait().await.unwrap();
            assert!(!status.success() && crashes < 20, "{status} after {crashes} crashes");
        }
    };
    tokio::select! {
        () = crashes => {}
        () = wait_until_all_are_acknowledged(&broker) => {}
    }
    for source in sources {
        let poison = source.starts_with("poison");
        let in_order: Vec<_> = (0..6).filter(|number| !poison || *number != 1).collect();
        assert_eq!(log.of(source), in_order, "{source}");
    }
    assert_eq!(broker.dead_letters().await, 2);
    let mut dead_letters = Vec::new();
    for number in [1, 2] {
        let (_, headers, _) = broker.dead_letter(number).await;
        let header = |name: &str| headers.get(name).unwrap().as_str().to_owned();
        assert_eq!(header("Udm-Dlq-Reason"), "the process ended 5 times while it handled the event");
        assert_eq!(header("Udm-Dlq-Attempts"), "5");
        dead_letters.push(header("ce-id"));
    }
    dead_letters.sort();
    assert_eq!(dead_letters, ["poison-a:1", "poison-b:1"]);
}

#[tokio::test]
async fn a_process_that_gets_sigterm_acknowledges_its_events_and_ends_without_an_error() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    let log = LogFile::new();
    let mut process = start(&broker, &log, Mode::Log);
    wait_until("the event is handled", async || (log.lines() == 1).then_some(())).await;
    let kill = format!("kill -TERM {}", process.id().unwrap());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let status = within(DEADLINE, "the end", process.wait()).await.unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(broker.info().await.num_ack_pending, 0);
}

#[tokio::test]
async fn a_process_that_is_killed_five_times_while_handlers_block_loses_no_event() {
    let broker = Broker::start().await;
    let sources = ["a", "b", "c"];
    for number in 0..3 {
        for source in sources {
            broker.publish(source, number).await;
        }
    }
    let log = LogFile::new();
    for _ in 0..5 {
        let before = log.lines();
        let mut process = start(&broker, &log, Mode::Block);
        wait_until("a handler blocks", async || (log.lines() > before).then_some(())).await;
        process.kill().await.unwrap();
    }
    let _process = start(&broker, &log, Mode::Log);
    wait_until_all_are_acknowledged(&broker).await;
    for source in sources {
        assert_eq!(log.of(source), [0, 1, 2], "{source}");
    }
    assert_eq!(broker.dead_letters().await, 0);
}
