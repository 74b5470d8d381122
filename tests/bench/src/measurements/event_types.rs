//! What invented event types of one tenant cost another one while the first one opens readers. The control is a tenant with as many
//! events of one type.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::{Bench, p99};
use crate::events::batch_body;
use crate::load::{LoadResult, send_once, send_repeatedly};
use crate::report::Comparison;
use crate::system::{Launcher, System};
use crate::user::{BenchUser, first_admin, tenant_admin};

const EVENTS: usize = 200_000;
const BATCH: usize = 1_000;
const CONNECTIONS: usize = 4;
const READERS: usize = 20;
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(4);
/// Pause of a sender after a response, and of a reader after a rejection.
const PAUSE: Duration = Duration::from_millis(20);
/// Room for all events, and the default limit of opened streams.
const VARIABLES: [(&str, &str); 3] = [
    ("SVC_STREAM_MAX_BYTES", "2GiB"),
    ("SVC_TENANT_STREAM_SHARE", "100"),
    ("SVC_LIMIT_EVENT_STREAM", "60/min"),
];

impl Bench<'_> {
    pub(crate) async fn invented_types(&mut self, launcher: &Launcher<'_>) -> anyhow::Result<()> {
        let system = launcher.start(&VARIABLES).await?;
        let (other, one) = (first_admin(&system).await?, tenant_admin(&system, "one-type".to_owned()).await?);
        let many = tenant_admin(&system, "many-types".to_owned()).await?;
        fill(&system, &one, |_| "ONE".to_owned()).await?;
        fill(&system, &many, |number| format!("INVENTED_{number}")).await?;
        let (mut tails, mut accepted, mut opened) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            let (control, _) = during_readers(&system, &one, &other).await?;
            let (attacked, streams) = during_readers(&system, &many, &other).await?;
            tails.push((p99(&attacked)?, p99(&control)?));
            accepted.push((share(&attacked), share(&control)));
            opened.push(streams);
        }
        let baseline = "the same with 200,000 events of one type";
        for (name, rounds, target) in [
            (
                "event of another tenant during 20 readers of 200,000 invented types, p99, ms",
                tails,
                Some("≤ 1.5"),
            ),
            ("  share of its accepted events", accepted, Some("1.00")),
        ] {
            self.report.add_comparison(Comparison { name, baseline, rounds, target });
        }
        self.report.add_value("  opened readers", opened);
        Ok(())
    }
}

/// Sends events of these types from one source.
async fn fill(system: &System, user: &BenchUser, event_type: impl Fn(usize) -> String) -> anyhow::Result<()> {
    let event = |number: usize| {
        let event_type = event_type(number);
        Bytes::from(format!(
            r#"{{"source_id":"fw","event_id":"{number}","metadata":{{"event_type":"{event_type}"}}}}"#
        ))
    };
    let batches = (0..EVENTS).step_by(BATCH).map(|first| {
        let events: Vec<_> = (first..first + BATCH).map(event).collect();
        user.post("/api/v1/events/batch", &batch_body(&events))
    });
    send_once(system.address, CONNECTIONS, batches.collect(), 202).await?;
    Ok(())
}

/// Sends events of another tenant while readers are opened one after the other. Returns the responses, and the number of readers.
async fn during_readers(
    system: &System,
    reader: &BenchUser,
    sender: &BenchUser,
) -> anyhow::Result<(LoadResult, f64)> {
    let event = sender.post("/api/v1/events", br#"{"source_id":"other"}"#);
    let (end, opened) = (Instant::now() + TIME, AtomicUsize::new(0));
    let url = format!("{}/api/v1/events/stream?since=2020-01-01T00:00:00Z", system.run_file.base_url);
    let readers = (0..READERS).map(async |_| {
        let client = testkit::client::plain_http();
        while Instant::now() < end {
            let response = client.get(&url).bearer_auth(reader.token().expose()).send().await;
            match response.map(|response| response.status().as_u16()) {
                Ok(200) => drop(opened.fetch_add(1, Ordering::Relaxed)),
                _ => sleep(PAUSE).await,
            }
        }
    });
    let requests = vec![event; CONNECTIONS];
    let sent = send_repeatedly(system.address, &requests, 202, TIME, PAUSE);
    let (sent, _) = tokio::join!(sent, join_all(readers));
    #[expect(clippy::cast_precision_loss, reason = "a number for display")]
    let opened = opened.into_inner() as f64;
    Ok((sent?, opened))
}

#[expect(clippy::cast_precision_loss, reason = "a share for display")]
fn share(load: &LoadResult) -> f64 {
    load.times.len() as f64 / (load.times.len() + load.rejected) as f64
}
