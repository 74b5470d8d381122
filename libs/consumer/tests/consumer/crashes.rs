//! Handlers that end the process. The consumer is a process of its own, which the test starts again after each crash.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use consumer::{Config, Event, Failure};
use testkit::{DEADLINE, wait_until, within};

use super::broker::{Broker, PASSWORD};

/// Name of the test that is the process.
const PROCESS: &str = "consumer::crashes::the_process_of_a_consumer";

/// Not a test, but the process that the tests start, with the address of the broker and a file for its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a process of a test")]
async fn the_process_of_a_consumer() {
    let [Ok(url), Ok(log)] = ["CRASH_TEST_NATS_URL", "CRASH_TEST_LOG"].map(std::env::var) else { return };
    let log = Arc::new(OpenOptions::new().append(true).open(log).unwrap());
    let config = Config::new(url, "consumer", PASSWORD);
    let run = consumer::run(config, std::future::pending(), move |event| handle(event, Arc::clone(&log)));
    run.await.unwrap();
}

/// Aborts for the event with the number 1 of a source `poison-…`, and logs the others.
#[expect(clippy::unused_async, reason = "a handler")]
async fn handle(event: Arc<Event>, log: Arc<File>) -> Result<(), Failure> {
    if event.event_id.starts_with("poison") && event.event_id.ends_with(":1") {
        std::process::abort();
    }
    writeln!(&*log, "{}", event.event_id).unwrap();
    Ok(())
}

fn start(url: &str, log: &Path) -> tokio::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", PROCESS, "--nocapture"]);
    command.env("CRASH_TEST_NATS_URL", url).env("CRASH_TEST_LOG", log);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap()
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
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    File::create(&log).unwrap();
    let crashes = async {
        for crashes in 0.. {
            let status = start(&broker.server.url, &log).wait().await.unwrap();
            assert!(!status.success() && crashes < 20, "{status} after {crashes} crashes");
        }
    };
    let handled = wait_until("all events are acknowledged", async || {
        let info = broker.info().await;
        (info.num_pending == 0 && info.num_ack_pending == 0).then_some(())
    });
    tokio::select! {
        () = crashes => {}
        () = within(DEADLINE, "all events", handled) => {}
    }
    let lines = read_to_string(&log).unwrap();
    for source in sources {
        let prefix = format!("{source}:");
        // An event can be handled a second time after a crash.
        let mut numbers: Vec<u32> = Vec::new();
        for number in lines.lines().filter_map(|id| id.strip_prefix(&prefix)) {
            let number = number.parse().unwrap();
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let poison = source.starts_with("poison");
        let in_order: Vec<_> = (0..6).filter(|number| !poison || *number != 1).collect();
        assert_eq!(numbers, in_order, "{source}");
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
