//! Sends batches concurrently and returns their results in the order of the batches, so that a program can record how far it is.

use std::collections::VecDeque;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::{TransportState, batch};
use crate::{BatchProgress, BatchSendResult, HttpTransport, OutgoingEvent};

/// Number of batches, per concurrent one, that are sent or wait for the results of an earlier batch.
const WINDOW: usize = 4;

/// Batches that are sent concurrently.
///
/// Memory: the batches without a returned result, at most four times as many as are sent at the same time. Cancellation: dropping the
/// pipeline cancels its requests.
///
/// The oldest batch, and one of which no event was accepted, keep their place until [`next`](Self::next) returns them. So a program that
/// sends one batch at a time has its result before the next one is sent, and if the service rejects every request, at most one batch
/// per place is sent before the program has the first result.
pub struct BatchPipeline<B> {
    state: TransportState,
    concurrency: usize,
    requests: Arc<Semaphore>,
    window: Arc<Semaphore>,
    sent: VecDeque<(Sending<B>, Permit)>,
    /// Number of batches that [`next`](Self::next) has returned.
    returned: Arc<AtomicUsize>,
}

/// Permission to send one batch.
#[derive(Debug)]
pub struct PipelineSlot {
    request: Permit,
    window: Permit,
}

/// One task, which ends when it is dropped. Returns the place of a batch that keeps it.
type Sending<B> = JoinSet<(SentBatch<B>, Permit)>;

/// `None` never occurs: the semaphores are not closed.
type Permit = Option<OwnedSemaphorePermit>;

/// A batch and its results.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SentBatch<B> {
    /// Batch, unchanged.
    pub batch: B,
    /// Results in the order of its events.
    pub result: BatchSendResult,
    /// Accepted events that were already stored.
    pub duplicates: usize,
    /// Invalid events that are stored as dead letters. They count as successful.
    pub quarantined: usize,
}

impl HttpTransport {
    /// Returns an empty pipeline that sends at most this number of batches at the same time, at least one.
    pub fn pipeline<B>(&self, concurrency: usize) -> BatchPipeline<B> {
        let concurrency = concurrency.max(1);
        let [requests, window] = [concurrency, concurrency * WINDOW].map(|n| Arc::new(Semaphore::new(n)));
        let (sent, returned) = (VecDeque::new(), Arc::default());
        BatchPipeline { state: self.shared.clone(), concurrency, requests, window, sent, returned }
    }
}

impl<B> fmt::Debug for BatchPipeline<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchPipeline").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}

impl<B: 'static> BatchPipeline<B> {
    /// Returns whether the results of all batches are returned.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Number of batches that are being sent.
    pub fn requests(&self) -> usize {
        self.concurrency - self.requests.available_permits()
    }

    /// Waits until a batch can be sent.
    pub fn slot(&self) -> impl Future<Output = PipelineSlot> + Send + use<B> {
        let (requests, window) = (Arc::clone(&self.requests), Arc::clone(&self.window));
        async move {
            let window = window.acquire_owned().await.ok();
            PipelineSlot { request: requests.acquire_owned().await.ok(), window }
        }
    }

    /// Waits for the results of the oldest batch. Returns `None` if no batch is left.
    ///
    /// Cancellation: dropping the future loses no batch.
    pub async fn next(&mut self) -> Option<SentBatch<B>> {
        let result = self.sent.front_mut()?.0.join_next().await?;
        self.sent.pop_front();
        self.returned.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok((sent, _)) => Some(sent),
            // Otherwise the runtime is shutting down.
            Err(error) => resume_unwind(error.try_into_panic().ok()?),
        }
    }
}

impl<B: AsRef<[OutgoingEvent]> + Send + Sync + 'static> BatchPipeline<B> {
    /// Starts to send a batch, as [`send_outgoing`](HttpTransport::send_outgoing) does.
    pub fn send(
        &mut self,
        slot: PipelineSlot,
        batch: B,
        mut on_progress: impl FnMut(BatchProgress) + Send + 'static,
    ) {
        let PipelineSlot { request, window } = slot;
        let (state, returned) = (self.state.clone(), Arc::clone(&self.returned));
        let before = returned.load(Ordering::Relaxed) + self.sent.len();
        let sending = state.in_flight.start();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _sending = sending;
            let (mut duplicates, mut quarantined) = (0, 0);
            let mut on_change = |progress: BatchProgress, _: &[_]| {
                (duplicates, quarantined) = (progress.duplicates, progress.quarantined);
                on_progress(progress);
            };
            let result = batch::deliver(&state, batch.as_ref(), &mut on_change).await;
            let is_oldest = returned.load(Ordering::Relaxed) == before;
            let request = request.filter(|_| is_oldest || result.successful_events == 0);
            (SentBatch { batch, result, duplicates, quarantined }, request)
        });
        self.sent.push_back((task, window));
    }
}
