//! Delivery of events in concurrent batches with bounded memory: reading pauses while too many requests are in flight. Results are
//! recorded in the order of the input.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::ProblemKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use transport::{BatchPipeline, OutgoingEvent, PipelineSlot, SentBatch, TransportError};

use super::checkpoint::{Checkpoint, Counts};
use super::item::{Place, described};
use super::progress::{Progress, Waits};
use super::ranges::ItemRanges;
use super::rejects::{Reject, RejectLog};
use super::source::SourceItem;
use crate::framework::error::{CliError, ErrorKind, Result};

/// A batch of this size is sent, whatever its number of events. The service accepts 10 MiB.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Delay after the first event of a batch until it is sent, if the source is slow.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(500);
/// Time in which the reader hands over what it has read.
const HAND_OVER_TIMEOUT: Duration = Duration::from_millis(500);

/// Result of a delivery.
#[derive(Default)]
pub(super) struct SendOutcome {
    /// Accepted, quarantined and rejected events and unreadable lines, with those of earlier runs of a checkpoint.
    pub(super) counts: Counts,
    /// Events of requests that failed as a whole, and those of standard input that were read and not sent after that.
    pub(super) failed: u64,
    /// First error that is not caused by an event.
    pub(super) request_error: Option<TransportError>,
    /// Error of the input, of the rejects file or of the checkpoint.
    pub(super) local_error: Option<CliError>,
    /// The signal that ended the delivery.
    pub(super) signal: Option<ErrorKind>,
    /// Whether another run can read the same input.
    pub(super) is_repeatable: bool,
    /// Line and item of the first reject or failed event that could not be kept.
    pub(super) first_lost: Option<(u64, Option<u64>)>,
    /// The first event that was not sent.
    pub(super) stopped_before: Option<Place>,
    pub(super) elapsed: Duration,
}

/// A delivery in progress.
pub(super) struct EventDelivery {
    batches: Batches,
    pipeline: BatchPipeline<Batch>,
    waits: Waits,
    /// Events of requests that failed as a whole.
    failed: Vec<(Place, OutgoingEvent, TransportError)>,
    settled: ItemRanges,
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
        let is_repeatable = batches.is_repeatable;
        Self {
            batches,
            pipeline,
            waits: Waits::default(),
            failed: Vec::new(),
            settled: checkpoint.as_ref().map(|checkpoint| checkpoint.settled().clone()).unwrap_or_default(),
            checkpoint,
            rejects,
            progress,
            result: SendOutcome { counts, is_repeatable, ..SendOutcome::default() },
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
        self.finish().await
    }

    fn is_stopped(&self) -> bool {
        let SendOutcome { request_error, local_error, signal, .. } = &self.result;
        request_error.is_some() || local_error.is_some() || signal.is_some()
    }

    /// Starts to send a batch. `None` is the end of the input.
    fn send(&mut self, slot: PipelineSlot, batch: Option<Result<Batch>>) -> Result<()> {
        match batch.transpose()? {
            Some(batch) => {
                let (waits, first) = (self.waits.clone(), batch.next.number);
                self.pipeline.send(slot, batch, move |progress| waits.set(first, &progress));
            }
            None => self.end_of_input = true,
        }
        Ok(())
    }

    /// Records the results of a batch: first the rejects, then that its events are settled, except those that failed, and rejects that
    /// could not be kept.
    fn record(
        &mut self,
        SentBatch { batch, result, duplicates, quarantined, .. }: SentBatch<Batch>,
    ) -> Result<()> {
        self.result.counts.accepted += (result.successful_events - quarantined) as u64;
        self.result.counts.quarantined += quarantined as u64;
        self.result.counts.duplicates += duplicates as u64;
        let Batch { first, next: after, places, events, mut rejects, .. } = batch;
        let mut failed = Vec::new();
        for ((place, event), result) in places.into_iter().zip(events).zip(result.results) {
            let Some(error) = result.error else { continue };
            if is_request_error(&error) {
                self.result.request_error.get_or_insert_with(|| error.clone());
                failed.push(place.number);
                self.failed.push((place, event, error));
            } else {
                rejects.push((place.number, Reject::from_event(place, &event, &error)));
            }
        }
        rejects.sort_by_key(|(number, _)| *number);
        let (numbers, rejects): (Vec<_>, Vec<_>) = rejects.into_iter().unzip();
        let recorded = self.record_rejects(&rejects);
        if recorded.is_err() {
            failed.extend(numbers);
            failed.sort_unstable();
        }
        let mut next = first;
        for number in failed {
            self.settled.insert(next, number - 1);
            next = number + 1;
        }
        self.settled.insert(next, after.number - 1);
        recorded.and(self.save_checkpoint(false))
    }

    fn record_rejects(&mut self, rejects: &[Reject]) -> Result<()> {
        let Some(first) = rejects.first() else { return Ok(()) };
        self.progress.clear();
        self.result.counts.needs_correction |= rejects.iter().any(|reject| !reject.retryable);
        self.result.counts.truncated |= rejects.iter().any(|reject| reject.truncated);
        if let Err(error) = self.rejects.add(rejects) {
            return Err(self.not_kept(error, first));
        }
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

    async fn finish(mut self) -> (SendOutcome, RejectLog) {
        self.progress.clear();
        if let Err(error) = self.finish_records().await {
            self.result.local_error.get_or_insert(error);
        }
        self.result.elapsed = self.progress.elapsed();
        (self.result, self.rejects)
    }

    /// Keeps the events of requests that failed. With an input that cannot be read again, also those that were read and not sent.
    async fn finish_records(&mut self) -> Result<()> {
        let keeps_failed = self.keeps_failed();
        let kept = if keeps_failed { self.keep_failed().await } else { Ok(()) };
        let first_unsent = (!self.end_of_input).then(|| self.batches.next_place()).flatten();
        let first_failed = self.failed.first().filter(|_| !keeps_failed).map(|(place, ..)| *place);
        self.result.stopped_before = first_failed.or(first_unsent);
        kept.and(self.save_checkpoint(true))
    }

    async fn keep_failed(&mut self) -> Result<()> {
        let failed = self.failed.iter();
        let mut kept: Vec<_> = failed
            .map(|(place, event, error)| (place.number, Reject::from_event(*place, event, error)))
            .collect();
        if let (false, Some(error)) = (self.batches.is_repeatable, &self.result.request_error) {
            kept.extend(self.batches.take_read(error).await);
        }
        kept.sort_by_key(|(number, _)| *number);
        let kept: Vec<_> = kept.into_iter().map(|(_, reject)| reject).collect();
        self.result.counts.truncated |= kept.iter().any(|reject| reject.truncated);
        if let (Err(error), Some(first)) = (self.rejects.keep(&kept), kept.first()) {
            return Err(self.not_kept(error, first));
        }
        self.result.failed = kept.len() as u64;
        Ok(())
    }

    /// The error of rejects that cannot be written, with the first of them.
    fn not_kept(&mut self, error: CliError, first: &Reject) -> CliError {
        let lost = (first.line, first.item);
        self.result.first_lost = Some(self.result.first_lost.map_or(lost, |known| known.min(lost)));
        let message =
            format!("{}; the rejects from {} on are not kept", error.message, described(lost.0, lost.1));
        CliError { message, ..error }
    }

    /// Whether the events of failed requests are kept with the rejects. Not with a checkpoint, which sends them again, and not if
    /// certainly nothing was stored and the input can be read again: then the same command can be repeated.
    fn keeps_failed(&self) -> bool {
        let stored = self.result.counts.any_stored() || self.result.counts.rejected > 0;
        let is_rejected = |error: &TransportError| matches!(error.status, Some(300..=499));
        let is_certain = !self.any_sent.load(Ordering::Relaxed)
            || self.failed.iter().all(|(.., error)| is_rejected(error));
        self.checkpoint.is_none() && (stored || !is_certain || !self.batches.is_repeatable)
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
    /// Ends reading.
    stop: Arc<AtomicBool>,
    max_events: usize,
    /// Whether another run can read the same input: not standard input or a pipe.
    is_repeatable: bool,
    /// Whether [`Self::take_read`] has taken everything up to the end of the input.
    is_complete: bool,
    /// Items that are not in the batch yet.
    queue: VecDeque<SourceItem>,
    /// The batch that is not sent yet.
    batch: Batch,
    /// Error of the source, after the last item.
    error: Option<CliError>,
}

impl Batches {
    pub(super) fn new(
        chunks: mpsc::Receiver<Result<Vec<SourceItem>>>,
        stop: Arc<AtomicBool>,
        max_events: usize,
        is_repeatable: bool,
    ) -> Self {
        let (queue, batch) = (VecDeque::new(), Batch::after(Place::START));
        Self { chunks, stop, max_events, is_repeatable, is_complete: false, queue, batch, error: None }
    }

    /// The first event that is neither sent nor taken.
    fn next_place(&self) -> Option<Place> {
        let queued = || self.queue.front().map(|item| item.place);
        let unread = || (!self.is_complete).then_some(self.batch.next);
        self.batch.start.or_else(queued).or_else(unread)
    }

    /// Ends reading, and takes the items that were read and not sent, as rejects with this error.
    async fn take_read(&mut self, error: &TransportError) -> Vec<(u64, Reject)> {
        self.stop.store(true, Ordering::Relaxed);
        self.is_complete = self.error.is_none();
        loop {
            match timeout(HAND_OVER_TIMEOUT, self.chunks.recv()).await {
                Ok(Some(Ok(items))) => self.queue.extend(items),
                // The reader has stopped before the end, or cannot read.
                Ok(Some(Err(_))) => self.is_complete = false,
                Ok(None) => break,
                // The reader waits for input, so it has handed over everything.
                Err(_) => {
                    self.is_complete = false;
                    break;
                }
            }
        }
        self.chunks.close();
        for item in take(&mut self.queue) {
            self.batch.push(item);
        }
        let next = Batch::after(self.batch.next);
        let Batch { places, events, rejects, .. } = replace(&mut self.batch, next);
        let unsent = places
            .into_iter()
            .zip(&events)
            .map(|(place, event)| (place.number, Reject::from_event(place, event, error)));
        unsent.chain(rejects).collect()
    }

    /// Returns the next batch when it is full or due. `None` is the end of the input. Dropping the future loses no item.
    async fn next(&mut self) -> Option<Result<Batch>> {
        while !self.batch.is_full(self.max_events) {
            if let Some(item) = self.queue.pop_front() {
                self.batch.push(item);
                continue;
            }
            // The readable events before it are sent.
            if self.error.is_some() {
                break;
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
                Some(Err(error)) => self.error = Some(error),
                None => break,
            }
        }
        let is_empty = self.batch.events.is_empty() && self.batch.rejects.is_empty();
        if is_empty {
            return self.error.take().map(Err);
        }
        let next = Batch::after(self.batch.next);
        Some(Ok(replace(&mut self.batch, next)))
    }
}

/// Events that are sent together.
pub(super) struct Batch {
    /// Number of the first event.
    first: u64,
    /// Place of the event after the last one, also after one that is not sent. Its line is an estimate until it is read.
    next: Place,
    /// Place of the first event, if there is one.
    start: Option<Place>,
    events: Vec<OutgoingEvent>,
    places: Vec<Place>,
    /// Numbers and rejects of what cannot be sent.
    rejects: Vec<(u64, Reject)>,
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
    fn after(next: Place) -> Self {
        let (start, events, places, rejects, bytes, due) = Default::default();
        Self { first: next.number, next, start, events, places, rejects, bytes, due }
    }

    fn push(&mut self, item: SourceItem) {
        self.due.get_or_insert_with(|| Instant::now() + MAX_BATCH_DELAY);
        self.bytes += item.bytes();
        let place = item.place;
        self.start.get_or_insert(place);
        self.next = Place { number: place.number + 1, line: place.line + 1, ..place };
        match item.event {
            Ok(event) => {
                self.places.push(place);
                self.events.push(event);
            }
            Err(reject) => self.rejects.push((place.number, *reject)),
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
