//! Delivery of events in concurrent batches with bounded memory: reading pauses while too many requests are in flight. Results are
//! recorded in the order of the input.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::ProblemKind;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use transport::{BatchProgress, BatchSendResult, HttpTransport, OutgoingEvent, SendResult, TransportError};

use super::checkpoint::{Checkpoint, Counts};
use super::lines::LineRanges;
use super::progress::{Progress, Waits};
use super::rejects::{Reject, RejectLog};
use super::source::SourceItem;
use crate::error::{CliError, ErrorKind, Result};

/// A batch of this size is sent, whatever its number of events. The service accepts 10 MiB.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Delay after the first event of a batch until it is sent, if the source is slow.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(500);
/// Maximum number of batches, per concurrent request, with rejects that wait for those of an earlier batch.
const MAX_HELD: usize = 4;

/// Limits of batches and concurrency.
#[derive(Clone, Copy)]
pub(super) struct BatchLimits {
    /// Maximum number of events per batch.
    pub(super) batch_size: usize,
    /// Maximum number of batches in flight.
    pub(super) concurrency: usize,
}

/// Result of a delivery.
#[derive(Default)]
pub(super) struct DeliveryResult {
    /// Accepted and rejected events and unreadable lines, with those of earlier runs of a checkpoint.
    pub(super) counts: Counts,
    /// Events of requests that failed as a whole.
    pub(super) failed: u64,
    /// Whether a reject cannot be accepted later without a change.
    pub(super) needs_correction: bool,
    /// First error that is not caused by an event.
    pub(super) request_error: Option<TransportError>,
    /// Error of the input, of the rejects file or of the checkpoint.
    pub(super) local_error: Option<CliError>,
    /// The signal that ended the delivery.
    pub(super) signal: Option<ErrorKind>,
    /// First line that was not sent.
    pub(super) stopped_before: Option<u64>,
    pub(super) elapsed: Duration,
}

/// An event and its line.
type NumberedEvent = (u64, OutgoingEvent);

/// An event of a request that failed as a whole.
type FailedEvent = (u64, OutgoingEvent, TransportError);

/// A delivery in progress.
pub(super) struct Delivery {
    transport: Arc<HttpTransport>,
    limits: BatchLimits,
    /// Items that are not in a batch yet.
    queue: VecDeque<SourceItem>,
    batch: Batch,
    in_flight: JoinSet<(Batch, BatchSendResult, usize)>,
    waits: Waits,
    /// Batches with results, and with rejects that wait for those of an earlier batch, by number.
    held: BTreeMap<u64, Settled>,
    /// Number of the first batch without recorded rejects.
    next_number: u64,
    failed: Vec<FailedEvent>,
    settled: LineRanges,
    checkpoint: Option<Checkpoint>,
    rejects: RejectLog,
    progress: Progress,
    result: DeliveryResult,
    end_of_input: bool,
    /// Whether the service can have received a request.
    any_sent: Arc<AtomicBool>,
}

/// Results of a batch.
struct Settled {
    first_line: u64,
    last_line: u64,
    rejects: Vec<Reject>,
    /// Lines that must be sent again, in order.
    failed_lines: Vec<u64>,
}

impl Delivery {
    pub(super) fn new(
        transport: HttpTransport,
        any_sent: Arc<AtomicBool>,
        limits: BatchLimits,
        checkpoint: Option<Checkpoint>,
        rejects: RejectLog,
        progress: Progress,
    ) -> Self {
        let counts = checkpoint.as_ref().map(Checkpoint::counts).unwrap_or_default();
        Self {
            transport: Arc::new(transport),
            limits,
            queue: VecDeque::new(),
            batch: Batch::new(0, 1),
            in_flight: JoinSet::new(),
            waits: Waits::default(),
            held: BTreeMap::new(),
            next_number: 0,
            failed: Vec::new(),
            settled: checkpoint.as_ref().map(|checkpoint| checkpoint.settled().clone()).unwrap_or_default(),
            checkpoint,
            rejects,
            progress,
            result: DeliveryResult { counts, ..DeliveryResult::default() },
            end_of_input: false,
            any_sent,
        }
    }

    /// Sends all items. After a signal, or an error that would affect every request, sends no further batches, and waits for those
    /// in flight.
    pub(super) async fn run(
        mut self,
        mut items: mpsc::Receiver<Result<Vec<SourceItem>>>,
        signal: impl Future<Output = ErrorKind>,
    ) -> (DeliveryResult, RejectLog) {
        let mut signal = std::pin::pin!(signal);
        loop {
            let can_send = self.can_send();
            if can_send && !self.queue.is_empty() {
                self.fill_batches();
                continue;
            }
            if self.is_finished() {
                break;
            }
            let due = self.batch.due;
            let step = tokio::select! {
                biased;
                signal = &mut signal, if self.result.signal.is_none() => {
                    self.result.signal = Some(signal);
                    self.progress.explain_wait(self.in_flight.len());
                    Ok(())
                }
                () = self.progress.due(), if !self.in_flight.is_empty() => {
                    self.progress.update(self.result.counts, &self.waits);
                    Ok(())
                }
                Some(done) = self.in_flight.join_next() => self.record_batch(done),
                chunk = items.recv(), if can_send && !self.end_of_input => self.add_chunk(chunk),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if can_send && due.is_some() => {
                    self.send_batch();
                    Ok(())
                }
                else => break,
            };
            if let Err(error) = step {
                self.result.local_error.get_or_insert(error);
            }
        }
        self.finish()
    }

    fn is_stopped(&self) -> bool {
        let DeliveryResult { request_error, local_error, signal, .. } = &self.result;
        request_error.is_some() || local_error.is_some() || signal.is_some()
    }

    fn is_finished(&self) -> bool {
        let is_sent = self.end_of_input && self.queue.is_empty() && self.batch.is_empty();
        self.in_flight.is_empty() && (is_sent || self.is_stopped())
    }

    fn can_send(&self) -> bool {
        let held = self.held.values().filter(|batch| !batch.rejects.is_empty()).count();
        !self.is_stopped()
            && self.in_flight.len() < self.limits.concurrency
            && held < MAX_HELD * self.limits.concurrency
    }

    /// Adds the items of a read. `None` is the end of the input.
    fn add_chunk(&mut self, chunk: Option<Result<Vec<SourceItem>>>) -> Result<()> {
        if let Some(chunk) = chunk {
            self.queue.extend(chunk?);
        } else {
            self.end_of_input = true;
            self.send_batch();
        }
        Ok(())
    }

    /// Moves items into batches, until enough batches are in flight.
    fn fill_batches(&mut self) {
        while self.can_send()
            && let Some(item) = self.queue.pop_front()
        {
            self.batch.push(item);
            if self.batch.is_full(self.limits.batch_size) {
                self.send_batch();
            }
        }
    }

    /// Starts to send the current batch.
    fn send_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let next = Batch::new(self.batch.number + 1, self.batch.last_line + 1);
        let mut batch = std::mem::replace(&mut self.batch, next);
        let (transport, waits) = (Arc::clone(&self.transport), self.waits.clone());
        self.in_flight.spawn(async move {
            let (lines, events): (Vec<_>, Vec<_>) = std::mem::take(&mut batch.events).into_iter().unzip();
            let mut duplicates = 0;
            let results = transport.send_outgoing(&events, |progress: BatchProgress| {
                duplicates = progress.duplicates;
                waits.set(batch.number, &progress);
            });
            let results = results.await;
            batch.events = lines.into_iter().zip(events).collect();
            (batch, results, duplicates)
        });
    }

    /// Records the results of a batch.
    fn record_batch(
        &mut self,
        done: std::result::Result<(Batch, BatchSendResult, usize), JoinError>,
    ) -> Result<()> {
        let (batch, results, duplicates) =
            done.map_err(|error| ErrorKind::Defect.with_message(error.to_string()))?;
        let Batch { number, first_line, last_line, events, mut rejects, .. } = batch;
        self.result.counts.accepted += results.successful_events as u64;
        self.result.counts.duplicates += duplicates as u64;
        let mut failed_lines = Vec::new();
        for ((line, event), SendResult { error, .. }) in events.into_iter().zip(results.results) {
            let Some(error) = error else { continue };
            if is_request_error(&error) {
                self.result.request_error.get_or_insert_with(|| error.clone());
                failed_lines.push(line);
                self.failed.push((line, event, error));
            } else {
                rejects.push(Reject::of_event(line, &event, &error));
            }
        }
        rejects.sort_by_key(|reject| reject.line);
        let settled = Settled { first_line, last_line, rejects, failed_lines };
        if settled.rejects.is_empty() {
            // Without rejects, a batch need not wait for its turn.
            self.settle(&settled);
        }
        self.held.insert(number, settled);
        self.record_in_order()
    }

    /// Records the rejects of the next batches in the order of the input.
    fn record_in_order(&mut self) -> Result<()> {
        while let Some(batch) = self.held.remove(&self.next_number) {
            self.next_number += 1;
            self.record_rejects(&batch)?;
        }
        self.save_checkpoint(false)
    }

    fn record_rejects(&mut self, batch: &Settled) -> Result<()> {
        if batch.rejects.is_empty() {
            return Ok(());
        }
        self.progress.clear();
        self.result.needs_correction |= batch.rejects.iter().any(|reject| !reject.retryable);
        self.rejects.add(&batch.rejects).map_err(|mut error| {
            let line = batch.rejects[0].line;
            error.message = format!("{}; the rejects from line {line} on are not kept", error.message);
            error
        })?;
        self.result.counts.rejected += batch.rejects.len() as u64;
        self.settle(batch);
        Ok(())
    }

    /// Marks the lines of a batch as settled, except those that failed.
    fn settle(&mut self, batch: &Settled) {
        let mut next = batch.first_line;
        for &line in &batch.failed_lines {
            self.settled.insert(next, line - 1);
            next = line + 1;
        }
        self.settled.insert(next, batch.last_line);
    }

    fn save_checkpoint(&mut self, is_last: bool) -> Result<()> {
        match &mut self.checkpoint {
            Some(checkpoint) => {
                checkpoint.save(&self.settled, self.result.counts, self.rejects.bytes(), is_last)
            }
            None => Ok(()),
        }
    }

    fn finish(mut self) -> (DeliveryResult, RejectLog) {
        self.progress.clear();
        if let Err(error) = self.finish_records() {
            self.result.local_error.get_or_insert(error);
        }
        self.result.elapsed = self.progress.elapsed();
        (self.result, self.rejects)
    }

    /// Records what waits for batches that failed, and keeps the events of these.
    fn finish_records(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        let recorded = held.values().try_for_each(|batch| self.record_rejects(batch));
        self.failed.sort_by_key(|(line, ..)| *line);
        let is_complete = self.end_of_input && self.queue.is_empty() && self.batch.is_empty();
        let first_unsent = (!is_complete).then_some(self.batch.first_line);
        if self.keeps_failed() {
            self.result.failed = self.failed.len() as u64;
            self.result.stopped_before = first_unsent;
            let kept: Vec<_> = self
                .failed
                .iter()
                .map(|(line, event, error)| Reject::of_event(*line, event, error))
                .collect();
            recorded.and_then(|()| self.rejects.keep(&kept))?;
        } else {
            self.result.stopped_before = self.failed.first().map(|(line, ..)| *line).or(first_unsent);
            recorded?;
        }
        self.save_checkpoint(true)
    }

    /// Whether the events of failed requests are kept with the rejects. Not with a checkpoint, which sends them again, and not if
    /// certainly nothing was stored: then the same command can be repeated.
    fn keeps_failed(&self) -> bool {
        let stored = self.result.counts.accepted > 0 || self.result.counts.rejected > 0;
        let is_rejected = |error: &TransportError| matches!(error.status, Some(400..=499));
        let is_certain = !self.any_sent.load(Ordering::Relaxed)
            || self.failed.iter().all(|(.., error)| is_rejected(error));
        self.checkpoint.is_none() && (stored || !is_certain)
    }
}

/// Events that are not sent yet.
struct Batch {
    /// Position in the order of the input.
    number: u64,
    first_line: u64,
    /// Last line so far, also of one that is not sent.
    last_line: u64,
    events: Vec<NumberedEvent>,
    /// Lines that cannot be sent.
    rejects: Vec<Reject>,
    bytes: usize,
    /// When to send the batch at the latest; `None` while it is empty.
    due: Option<Instant>,
}

impl Batch {
    fn new(number: u64, first_line: u64) -> Self {
        Self {
            number,
            first_line,
            last_line: first_line - 1,
            events: Vec::new(),
            rejects: Vec::new(),
            bytes: 0,
            due: None,
        }
    }

    fn push(&mut self, item: SourceItem) {
        self.due.get_or_insert_with(|| Instant::now() + MAX_BATCH_DELAY);
        self.last_line = item.line;
        match item.event {
            Ok(event) => {
                self.bytes += event.body().len();
                self.events.push((item.line, event));
            }
            Err(reject) => {
                self.bytes += reject.text.as_ref().map_or(0, String::len);
                self.rejects.push(*reject);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.rejects.is_empty()
    }

    fn is_full(&self, max_events: usize) -> bool {
        self.events.len().max(self.rejects.len()) >= max_events || self.bytes >= MAX_BATCH_BYTES
    }
}

/// Returns whether the error is caused by the credential, the connection or the service, and not by the event.
fn is_request_error(error: &TransportError) -> bool {
    match error.code.as_deref().and_then(ProblemKind::from_code) {
        Some(ProblemKind::SourceNotAllowed) => false,
        Some(kind) => matches!(kind.status(), 401 | 403 | 408 | 429 | 500..),
        None => !matches!(error.status, Some(400 | 413 | 422)),
    }
}
