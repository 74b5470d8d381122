//! Delivery of events in concurrent batches with bounded memory: reading pauses while too many requests are in flight. On a
//! terminal, a line shows the progress.

use std::future::pending;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contract::ProblemKind;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use transport::{BatchSendResult, HttpTransport, OutgoingEvent, SendResult, TransportError};

use super::input::{EventIds, EventReader, InputItem, InputSource};
use super::rejects::{Reject, RejectLog, RejectedLine, error_code, error_message};
use crate::error::{CliError, ErrorKind, Result};
use crate::output::Output;

/// Number of items read ahead of the current batch.
const READ_AHEAD: usize = 64;
/// A batch of this size is sent, whatever its number of events. The service accepts 10 MiB.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Delay after the first event of a batch until it is sent, if the source is slow.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(500);

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
    pub(super) accepted: u64,
    /// Rejected events and unreadable lines.
    pub(super) rejected: u64,
    pub(super) first_rejects: Vec<RejectedLine>,
    /// Whether a reject cannot be accepted later without a change.
    pub(super) needs_correction: bool,
    /// First error that is not caused by an event.
    pub(super) request_error: Option<TransportError>,
    /// Error of the input or of the rejects file.
    pub(super) local_error: Option<CliError>,
    /// First line that was not sent because of an error.
    pub(super) stopped_before: Option<u64>,
    pub(super) elapsed: Duration,
}

/// An event and its line.
type NumberedEvent = (u64, OutgoingEvent);

/// A delivery in progress.
pub(super) struct Delivery {
    transport: Arc<HttpTransport>,
    ids: EventIds,
    limits: BatchLimits,
    batch: Batch,
    in_flight: JoinSet<(Vec<NumberedEvent>, BatchSendResult)>,
    /// Number of events of batches in flight that wait for a retry.
    waiting: Arc<AtomicUsize>,
    rejects: RejectLog,
    progress: Progress,
    result: DeliveryResult,
    end_of_input: bool,
    last_line_read: u64,
    last_line_sent: u64,
}

impl Delivery {
    pub(super) fn new(
        transport: HttpTransport,
        ids: EventIds,
        limits: BatchLimits,
        rejects: RejectLog,
        progress: Progress,
    ) -> Self {
        Self {
            transport: Arc::new(transport),
            ids,
            limits,
            batch: Batch::default(),
            in_flight: JoinSet::new(),
            waiting: Arc::default(),
            rejects,
            progress,
            result: DeliveryResult::default(),
            end_of_input: false,
            last_line_read: 0,
            last_line_sent: 0,
        }
    }

    /// Sends all items. After an error that would affect every request, sends no further batches, and waits for those in
    /// flight.
    pub(super) async fn run(mut self, mut items: mpsc::Receiver<Result<InputItem>>) -> DeliveryResult {
        loop {
            let can_read = self.can_read();
            let due = self.batch.due;
            let step = tokio::select! {
                biased;
                () = self.progress.due(), if !self.in_flight.is_empty() => {
                    self.progress.update(self.result.accepted, self.rejects.count(), self.waiting.load(Ordering::Relaxed));
                    Ok(())
                }
                Some(done) = self.in_flight.join_next() => self.record_batch(done),
                item = items.recv(), if can_read => self.add_item(item),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if can_read && due.is_some() => {
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

    fn can_read(&self) -> bool {
        let stopped = self.result.request_error.is_some() || self.result.local_error.is_some();
        !self.end_of_input && !stopped && self.in_flight.len() < self.limits.concurrency
    }

    fn finish(mut self) -> DeliveryResult {
        self.progress.clear();
        if let Err(error) = self.rejects.finish() {
            self.result.local_error.get_or_insert(error);
        }
        if !self.end_of_input {
            self.result.stopped_before = Some(self.last_line_sent + 1);
        }
        self.result.rejected = self.rejects.count();
        self.result.first_rejects = self.rejects.take_first();
        self.result.elapsed = self.progress.elapsed();
        self.result
    }

    /// Adds the next item to the batch or to the rejects. `None` is the end of the input.
    fn add_item(&mut self, item: Option<Result<InputItem>>) -> Result<()> {
        let Some(item) = item.transpose()? else {
            self.end_of_input = true;
            self.send_batch();
            return Ok(());
        };
        self.last_line_read = item.line;
        match item.json {
            Ok(json) => self.add_event(item.line, &json)?,
            Err(invalid) => self.reject(&Reject {
                text: Some(&invalid.text),
                ..Reject::new(item.line, invalid.code, &invalid.message)
            })?,
        }
        if self.batch.is_full(self.limits.batch_size) {
            self.send_batch();
        }
        Ok(())
    }

    fn add_event(&mut self, line: u64, json: &RawValue) -> Result<()> {
        match OutgoingEvent::from_json(json.to_owned(), || self.ids.for_line(line)) {
            Ok(event) => {
                self.batch.push(line, event);
                Ok(())
            }
            Err(error) => self.reject(&Reject {
                event: Some(json),
                ..Reject::new(line, error_code(&error), &error.message)
            }),
        }
    }

    /// Starts sending the current batch.
    fn send_batch(&mut self) {
        self.last_line_sent = self.last_line_read;
        let batch = self.batch.take();
        if batch.is_empty() {
            return;
        }
        let (transport, waiting) = (Arc::clone(&self.transport), Arc::clone(&self.waiting));
        self.in_flight.spawn(async move {
            let (lines, events): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let mut counted = 0;
            let results = transport.send_outgoing(&events, |progress| {
                waiting.fetch_add(progress.waiting_for_retry, Ordering::Relaxed);
                waiting.fetch_sub(counted, Ordering::Relaxed);
                counted = progress.waiting_for_retry;
            });
            let results = results.await;
            (lines.into_iter().zip(events).collect(), results)
        });
    }

    /// Records the results of a batch.
    fn record_batch(
        &mut self,
        done: std::result::Result<(Vec<NumberedEvent>, BatchSendResult), JoinError>,
    ) -> Result<()> {
        let (sent, results) = done.map_err(|error| ErrorKind::Defect.with_message(error.to_string()))?;
        self.result.accepted += results.successful_events as u64;
        if let Some(error) = request_error(&results) {
            self.result.request_error.get_or_insert(error);
        }
        for ((line, event), SendResult { error, .. }) in sent.iter().zip(&results.results) {
            let Some(error) = error else { continue };
            self.reject(&Reject {
                event_id: Some(event.event_id()),
                retryable: error.retryable,
                event: serde_json::from_str(event.body()).ok(),
                ..Reject::new(*line, error_code(error), error_message(error))
            })?;
        }
        Ok(())
    }

    fn reject(&mut self, reject: &Reject<'_>) -> Result<()> {
        self.progress.clear();
        self.result.needs_correction |= !reject.retryable;
        self.rejects.add(reject)
    }
}

/// Events that are not sent yet.
#[derive(Default)]
struct Batch {
    events: Vec<NumberedEvent>,
    bytes: usize,
    /// When to send the batch at the latest; `None` while it is empty.
    due: Option<Instant>,
}

impl Batch {
    fn push(&mut self, line: u64, event: OutgoingEvent) {
        self.bytes += event.body().len();
        self.due.get_or_insert_with(|| Instant::now() + MAX_BATCH_DELAY);
        self.events.push((line, event));
    }

    fn is_full(&self, max_events: usize) -> bool {
        self.events.len() >= max_events || self.bytes >= MAX_BATCH_BYTES
    }

    /// Takes the events and resets the batch.
    fn take(&mut self) -> Vec<NumberedEvent> {
        std::mem::take(self).events
    }
}

/// Error that affected all events of a batch. The next request would fail the same way.
fn request_error(results: &BatchSendResult) -> Option<TransportError> {
    let errors =
        results.results.iter().map(|result| result.error.as_ref().filter(|error| is_request_error(error)));
    let errors: Option<Vec<_>> = errors.collect();
    errors?.first().map(|&error| error.clone())
}

/// Returns whether the error is caused by the credential, the connection or the service, and not by the event.
fn is_request_error(error: &TransportError) -> bool {
    match error.code.as_deref().and_then(ProblemKind::from_code) {
        Some(ProblemKind::SourceNotAllowed) => false,
        Some(kind) => matches!(kind.status(), 401 | 403 | 408 | 429 | 500..),
        None => !matches!(error.status, Some(400 | 413 | 422)),
    }
}

/// Reads a source on a separate thread, because reading can block. Reading pauses while the channel is full.
pub(super) fn read_source(source: InputSource) -> mpsc::Receiver<Result<InputItem>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || match EventReader::new(source.reader) {
        Ok(items) => {
            for item in items {
                let item = item.map_err(|error| ErrorKind::InputUnreadable.with_message(error.to_string()));
                let failed = item.is_err();
                // Sending fails when the delivery has ended.
                if sender.blocking_send(item).is_err() || failed {
                    break;
                }
            }
        }
        Err(error) => drop(sender.blocking_send(Err(error))),
    });
    receiver
}

/// Time between two updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// A line that is overwritten by each update, and cleared at the end.
pub(super) struct Progress {
    started: Instant,
    last_update: Option<Instant>,
    enabled: bool,
}

impl Progress {
    /// Starts measuring time.
    pub(super) fn new(out: &Output) -> Self {
        Self { started: Instant::now(), last_update: None, enabled: out.shows_progress() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until the next update is due.
    async fn due(&self) {
        if !self.enabled {
            pending::<()>().await;
        }
        sleep_until(self.last_update.unwrap_or(self.started) + UPDATE_INTERVAL).await;
    }

    fn update(&mut self, accepted: u64, rejected: u64, waiting: usize) {
        self.last_update = Some(Instant::now());
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = accepted as f64 / self.elapsed().as_secs_f64();
        let waiting = if waiting > 0 { format!(", {waiting} waiting for a retry") } else { String::new() };
        overwrite_line(&format!("{accepted} accepted, {rejected} rejected{waiting}, {rate:.0}/s"));
    }

    /// Clears the line before other output.
    pub(super) fn clear(&mut self) {
        if self.last_update.take().is_some() {
            overwrite_line("");
        }
    }
}

/// A failure to write to standard error cannot be reported anywhere else.
fn overwrite_line(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
}
