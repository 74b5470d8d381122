//! Sends items in batches, several at once, with bounded memory: reading waits when sending does not keep up.

mod batch;

use std::sync::Arc;
use std::time::Duration;

use contract::ProblemKind;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use transport::{BatchSendResult, HttpTransport, OutgoingEvent, SendResult, TransportError};

use self::batch::{Batch, Numbered};
use super::ids::Ids;
use super::input::{Item, Items, Source};
use super::progress::Progress;
use super::rejects::{Reject, RejectedLine, Rejects, code_of};
use crate::error::{CliError, Fault, Result};

/// Items read ahead of the batch in the making.
const READ_AHEAD: usize = 64;

/// How a delivery is cut into requests.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Most events in a batch.
    pub(super) batch_size: usize,
    /// Most batches under way.
    pub(super) concurrency: usize,
}

/// What came of a delivery.
#[derive(Default)]
pub(super) struct Outcome {
    /// Events that the service has accepted.
    pub(super) accepted: u64,
    /// What was not accepted, unreadable lines included.
    pub(super) rejected: u64,
    /// The first of what was not accepted.
    pub(super) first_rejects: Vec<RejectedLine>,
    /// Some rejects could not be accepted later either, unchanged.
    pub(super) needs_correction: bool,
    /// The first failure that was no fault of an event.
    pub(super) failure: Option<TransportError>,
    /// What broke on this side: the input, or the file of rejects.
    pub(super) broken: Option<CliError>,
    /// The first line that was not sent, because going on was pointless.
    pub(super) stopped_before: Option<u64>,
    /// How long it took.
    pub(super) elapsed: Duration,
}

/// A delivery under way.
pub(super) struct Delivery {
    transport: Arc<HttpTransport>,
    ids: Ids,
    pace: Pace,
    batch: Batch,
    under_way: JoinSet<(Vec<Numbered>, BatchSendResult)>,
    rejects: Rejects,
    progress: Progress,
    outcome: Outcome,
    exhausted: bool,
    last_read: u64,
    last_sent: u64,
}

impl Delivery {
    /// A delivery through this transport.
    pub(super) fn new(
        transport: HttpTransport,
        ids: Ids,
        pace: Pace,
        rejects: Rejects,
        progress: Progress,
    ) -> Self {
        Self {
            transport: Arc::new(transport),
            ids,
            pace,
            batch: Batch::default(),
            under_way: JoinSet::new(),
            rejects,
            progress,
            outcome: Outcome::default(),
            exhausted: false,
            last_read: 0,
            last_sent: 0,
        }
    }

    /// Delivers everything, or stops where going on is pointless; waits for what is under way in any case.
    pub(super) async fn run(mut self, mut items: mpsc::Receiver<Result<Item>>) -> Outcome {
        loop {
            let may_read = self.may_read();
            let due = self.batch.due();
            let step = tokio::select! {
                biased;
                Some(done) = self.under_way.join_next() => self.settle(done),
                item = items.recv(), if may_read => self.take(item),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if may_read && due.is_some() => {
                    self.dispatch();
                    Ok(())
                }
                else => break,
            };
            if let Err(error) = step {
                self.outcome.broken.get_or_insert(error);
            }
            self.progress.tell(self.outcome.accepted, self.rejects.count());
        }
        self.finish()
    }

    fn may_read(&self) -> bool {
        let stopped = self.outcome.failure.is_some() || self.outcome.broken.is_some();
        !self.exhausted && !stopped && self.under_way.len() < self.pace.concurrency
    }

    fn finish(mut self) -> Outcome {
        self.progress.clear();
        if let Err(error) = self.rejects.finish() {
            self.outcome.broken.get_or_insert(error);
        }
        if !self.exhausted {
            self.outcome.stopped_before = Some(self.last_sent + 1);
        }
        self.outcome.rejected = self.rejects.count();
        self.outcome.first_rejects = self.rejects.take_first();
        self.outcome.elapsed = self.progress.elapsed();
        self.outcome
    }

    /// Takes the next item in: into the batch, or among the rejects.
    fn take(&mut self, item: Option<Result<Item>>) -> Result<()> {
        let Some(item) = item.transpose()? else {
            self.exhausted = true;
            self.dispatch();
            return Ok(());
        };
        self.last_read = item.line;
        match item.json {
            Ok(json) => self.take_json(item.line, &json)?,
            Err(flaw) => self.reject(&Reject {
                text: Some(&flaw.text),
                ..Reject::of_line(item.line, flaw.code, &flaw.message)
            })?,
        }
        if self.batch.is_full(self.pace.batch_size) {
            self.dispatch();
        }
        Ok(())
    }

    fn take_json(&mut self, line: u64, json: &RawValue) -> Result<()> {
        match OutgoingEvent::from_json(json.to_owned(), || self.ids.of_line(line)) {
            Ok(event) => {
                self.batch.push(line, event);
                Ok(())
            }
            Err(error) => self.reject(&Reject {
                event: Some(json),
                ..Reject::of_line(line, code_of(&error), &error.message)
            }),
        }
    }

    /// Sends the batch in the making on its way.
    fn dispatch(&mut self) {
        self.last_sent = self.last_read;
        let batch = self.batch.take();
        if batch.is_empty() {
            return;
        }
        let transport = Arc::clone(&self.transport);
        self.under_way.spawn(async move {
            let (lines, events): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let results = transport.send_outgoing(&events).await;
            (lines.into_iter().zip(events).collect(), results)
        });
    }

    /// Takes in what came of a batch.
    fn settle(
        &mut self,
        done: std::result::Result<(Vec<Numbered>, BatchSendResult), JoinError>,
    ) -> Result<()> {
        let (sent, results) = done.map_err(|error| Fault::Defect.because(error.to_string()))?;
        self.outcome.accepted += results.successful_events as u64;
        if let Some(failure) = failure_of_all(&results) {
            self.outcome.failure.get_or_insert(failure);
        }
        for ((line, event), SendResult { error, .. }) in sent.iter().zip(&results.results) {
            let Some(error) = error else { continue };
            self.reject(&Reject {
                event_id: Some(event.event_id()),
                retryable: error.retryable,
                event: serde_json::from_str(event.body()).ok(),
                ..Reject::of_line(*line, code_of(error), &error.message)
            })?;
        }
        Ok(())
    }

    fn reject(&mut self, reject: &Reject<'_>) -> Result<()> {
        self.progress.clear();
        self.outcome.needs_correction |= !reject.retryable;
        self.rejects.add(reject)
    }
}

/// Why a whole batch failed, when that was no fault of its events: the next one would fail the same way.
fn failure_of_all(results: &BatchSendResult) -> Option<TransportError> {
    let errors =
        results.results.iter().map(|result| result.error.as_ref().filter(|error| is_of_no_event(error)));
    // One result without such an error is enough to go on.
    let errors: Option<Vec<_>> = errors.collect();
    errors?.first().map(|&error| error.clone())
}

/// Whether it is the credential, the way to the service, or the service itself.
fn is_of_no_event(error: &TransportError) -> bool {
    match error.code.as_deref().and_then(ProblemKind::from_code) {
        Some(ProblemKind::SourceNotAllowed) => false,
        Some(kind) => matches!(kind.status(), 401 | 403 | 408 | 429 | 500..),
        None => !matches!(error.status, Some(400 | 413 | 422)),
    }
}

/// Reads a source on a thread of its own, since reading may wait for ever. What is read waits until it is taken.
pub(super) fn read(source: Source) -> mpsc::Receiver<Result<Item>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || match Items::of(source.reader) {
        Ok(items) => {
            for item in items {
                let item = item.map_err(|error| Fault::InputUnreadable.because(error.to_string()));
                let failed = item.is_err();
                // A receiver that is gone wants no more.
                if sender.blocking_send(item).is_err() || failed {
                    break;
                }
            }
        }
        Err(error) => drop(sender.blocking_send(Err(error))),
    });
    receiver
}
