//! Delivery of events in concurrent batches with bounded memory: reading pauses while too many requests are in flight. Results are
//! recorded in the order of the input.

use std::collections::VecDeque;
use std::mem::replace;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::ProblemKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use transport::{BatchPipeline, OutgoingEvent, PipelineSlot, SentBatch, TransportError};

use super::checkpoint::{Checkpoint, Counts};
use super::lines::LineRanges;
use super::progress::{Progress, Waits};
use super::rejects::{Reject, RejectLog};
use super::source::SourceItem;
use crate::framework::error::{CliError, ErrorKind, Result};

/// A batch of this size is sent, whatever its number of events. The service accepts 10 MiB.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Delay after the first event of a batch until it is sent, if the source is slow.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(500);
/// Result of a delivery.
#[derive(Default)]
pub(super) struct SendOutcome {
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

/// A delivery in progress.
pub(super) struct EventDelivery {
    batches: Batches,
    pipeline: BatchPipeline<Batch>,
    waits: Waits,
    /// Events of requests that failed as a whole.
    failed: Vec<(u64, OutgoingEvent, TransportError)>,
    settled: LineRanges,
    checkpoint: Option<Checkpoint>,
    rejects: RejectLog,
    progress: Progress,
    result: SendOutcome,
    end_of_input: bool,
    /// Whether the service can have received a request.
    any_sent: Arc<AtomicBool>,
}

impl EventDelivery {
    pub(super) fn new(
        batches: Batches,
        pipeline: BatchPipeline<Batch>,
        any_sent: Arc<AtomicBool>,
        checkpoint: Option<Checkpoint>,
        rejects: RejectLog,
        progress: Progress,
    ) -> Self {
        let counts = checkpoint.as_ref().map(Checkpoint::counts).unwrap_or_default();
        Self {
            batches,
            pipeline,
            waits: Waits::default(),
            failed: Vec::new(),
            settled: checkpoint.as_ref().map(|checkpoint| checkpoint.settled().clone()).unwrap_or_default(),
            checkpoint,
            rejects,
            progress,
            result: SendOutcome { counts, ..SendOutcome::default() },
            end_of_input: false,
            any_sent,
        }
    }

    /// Sends all batches. After a signal, or an error that would affect every request, sends no further ones, and waits for those in
    /// flight.
    pub(super) async fn run(mut self, signal: impl Future<Output = ErrorKind>) -> (SendOutcome, RejectLog) {
        let mut signal = pin!(signal);
        loop {
            let may_send = !self.end_of_input && !self.is_stopped();
            if self.pipeline.is_empty() && !may_send {
                break;
            }
            let slot = self.pipeline.slot();
            let step = tokio::select! {
                biased;
                signal = &mut signal, if self.result.signal.is_none() => {
                    self.result.signal = Some(signal);
                    self.progress.explain_wait(self.pipeline.requests());
                    Ok(())
                }
                () = self.progress.due(), if !self.pipeline.is_empty() => {
                    self.progress.update(self.result.counts, &self.waits);
                    Ok(())
                }
                Some(sent) = self.pipeline.next() => self.record(sent),
                (slot, batch) = next_batch(slot, &mut self.batches), if may_send => self.send(slot, batch),
            };
            if let Err(error) = step {
                self.result.local_error.get_or_insert(error);
            }
        }
        self.finish()
    }

    fn is_stopped(&self) -> bool {
        let SendOutcome { request_error, local_error, signal, .. } = &self.result;
        request_error.is_some() || local_error.is_some() || signal.is_some()
    }

    /// Starts to send a batch. `None` is the end of the input.
    fn send(&mut self, slot: PipelineSlot, batch: Option<Result<Batch>>) -> Result<()> {
        match batch.transpose()? {
            Some(batch) => {
                let (waits, first_line) = (self.waits.clone(), batch.first_line);
                self.pipeline.send(slot, batch, move |progress| waits.set(first_line, &progress));
            }
            None => self.end_of_input = true,
        }
        Ok(())
    }

    /// Records the results of a batch: first the rejects, then that its lines are settled, except those that failed.
    fn record(&mut self, SentBatch { batch, result, duplicates }: SentBatch<Batch>) -> Result<()> {
        self.result.counts.accepted += result.successful_events as u64;
        self.result.counts.duplicates += duplicates as u64;
        let Batch { first_line, last_line, lines, events, mut rejects, .. } = batch;
        let mut failed_lines = Vec::new();
        for ((line, event), result) in lines.into_iter().zip(events).zip(result.results) {
            let Some(error) = result.error else { continue };
            if is_request_error(&error) {
                self.result.request_error.get_or_insert_with(|| error.clone());
                failed_lines.push(line);
                self.failed.push((line, event, error));
            } else {
                rejects.push(Reject::from_event(line, &event, &error));
            }
        }
        rejects.sort_by_key(|reject| reject.line);
        self.record_rejects(&rejects)?;
        let mut next = first_line;
        for line in failed_lines {
            self.settled.insert(next, line - 1);
            next = line + 1;
        }
        self.settled.insert(next, last_line);
        self.save_checkpoint(false)
    }

    fn record_rejects(&mut self, rejects: &[Reject]) -> Result<()> {
        let Some(first) = rejects.first() else { return Ok(()) };
        self.progress.clear();
        self.result.needs_correction |= rejects.iter().any(|reject| !reject.retryable);
        self.rejects.add(rejects).map_err(|error| {
            let message = format!("{}; the rejects from line {} on are not kept", error.message, first.line);
            CliError { message, ..error }
        })?;
        self.result.counts.rejected += rejects.len() as u64;
        Ok(())
    }

    fn save_checkpoint(&mut self, is_last: bool) -> Result<()> {
        match &mut self.checkpoint {
            Some(checkpoint) => {
                checkpoint.save(&self.settled, self.result.counts, self.rejects.bytes(), is_last)
            }
            None => Ok(()),
        }
    }

    fn finish(mut self) -> (SendOutcome, RejectLog) {
        self.progress.clear();
        if let Err(error) = self.finish_records() {
            self.result.local_error.get_or_insert(error);
        }
        self.result.elapsed = self.progress.elapsed();
        (self.result, self.rejects)
    }

    /// Keeps the events of requests that failed.
    fn finish_records(&mut self) -> Result<()> {
        let first_unsent = (!self.end_of_input).then_some(self.batches.batch.first_line);
        if self.keeps_failed() {
            self.result.failed = self.failed.len() as u64;
            self.result.stopped_before = first_unsent;
            let kept = self.failed.iter().map(|(line, event, error)| Reject::from_event(*line, event, error));
            self.rejects.keep(&kept.collect::<Vec<_>>())?;
        } else {
            self.result.stopped_before = self.failed.first().map(|(line, ..)| *line).or(first_unsent);
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

/// Waits until a batch can be sent, then for the batch.
async fn next_batch(
    slot: impl Future<Output = PipelineSlot>,
    batches: &mut Batches,
) -> (PipelineSlot, Option<Result<Batch>>) {
    (slot.await, batches.next().await)
}

/// Collects the items of a source in batches.
pub(super) struct Batches {
    chunks: mpsc::Receiver<Result<Vec<SourceItem>>>,
    max_events: usize,
    /// Items that are not in the batch yet.
    queue: VecDeque<SourceItem>,
    /// The batch that is not sent yet.
    batch: Batch,
}

impl Batches {
    pub(super) fn new(chunks: mpsc::Receiver<Result<Vec<SourceItem>>>, max_events: usize) -> Self {
        Self { chunks, max_events, queue: VecDeque::new(), batch: Batch::from_line(1) }
    }

    /// Returns the next batch when it is full or due. `None` is the end of the input. Dropping the future loses no item.
    async fn next(&mut self) -> Option<Result<Batch>> {
        while !self.batch.is_full(self.max_events) {
            if let Some(item) = self.queue.pop_front() {
                self.batch.push(item);
                continue;
            }
            let chunk = match self.batch.due {
                None => self.chunks.recv().await,
                Some(due) => match timeout_at(due, self.chunks.recv()).await {
                    Ok(chunk) => chunk,
                    Err(_) => break,
                },
            };
            match chunk {
                Some(Ok(items)) => self.queue.extend(items),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        let is_empty = self.batch.events.is_empty() && self.batch.rejects.is_empty();
        let next = Batch::from_line(self.batch.last_line + 1);
        (!is_empty).then(|| Ok(replace(&mut self.batch, next)))
    }
}

/// Events that are sent together.
pub(super) struct Batch {
    first_line: u64,
    /// Last line so far, also of one that is not sent.
    last_line: u64,
    events: Vec<OutgoingEvent>,
    /// Lines of the events.
    lines: Vec<u64>,
    /// Lines that cannot be sent.
    rejects: Vec<Reject>,
    bytes: usize,
    /// When to send the batch at the latest; `None` while it is empty.
    due: Option<Instant>,
}

impl AsRef<[OutgoingEvent]> for Batch {
    fn as_ref(&self) -> &[OutgoingEvent] {
        &self.events
    }
}

impl Batch {
    fn from_line(first_line: u64) -> Self {
        let (events, lines, rejects, bytes, due) = Default::default();
        Self { first_line, last_line: first_line - 1, events, lines, rejects, bytes, due }
    }

    fn push(&mut self, item: SourceItem) {
        self.due.get_or_insert_with(|| Instant::now() + MAX_BATCH_DELAY);
        self.last_line = item.line;
        match item.event {
            Ok(event) => {
                self.bytes += event.body().len();
                self.lines.push(item.line);
                self.events.push(event);
            }
            Err(reject) => {
                self.bytes += reject.text.as_ref().map_or(0, String::len);
                self.rejects.push(*reject);
            }
        }
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
