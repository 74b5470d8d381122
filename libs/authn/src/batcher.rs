//! Introspection batcher: combines concurrent lookups. A lookup that arrives while none is in flight starts at once.
//! Lookups that arrive meanwhile form the next batch, so that batches grow with the load and no lookup waits for others.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hashing::TokenDigest;
use parking_lot::Mutex;
use service::Tasks;
use service::telemetry::Origin;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{CredentialVerifier, Introspection, Introspector, Unavailable};

/// Maximum number of credentials in one batch.
pub const MAX_BATCH: usize = 256;
/// Maximum number of batches in flight. With two, lookups continue while one batch waits for a broken connection.
const MAX_IN_FLIGHT: usize = 2;
/// Maximum number of queued credentials. More could not be looked up in time.
const MAX_QUEUED: usize = 16 * 1024;
/// Timeout of a lookup, including the time in the queue. A lookup usually takes a millisecond.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

type BatchResult = Result<Vec<Introspection>, Unavailable>;

/// A [`CredentialVerifier`] that combines lookups of concurrent callers. Clones share the queue.
#[derive(Clone)]
pub struct IntrospectionBatcher(Arc<BatcherState>);

struct BatcherState {
    source: Box<dyn Introspector>,
    tasks: Tasks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Request>,
    queued_digests: usize,
    in_flight: usize,
}

/// The lookup of one caller.
struct Request {
    digests: Vec<TokenDigest>,
    reply: oneshot::Sender<BatchResult>,
    origin: Option<Origin>,
}

impl IntrospectionBatcher {
    /// Returns a batcher that queries `source` in background tasks.
    pub fn new(source: impl Introspector + 'static, tasks: &Tasks) -> Self {
        Self(Arc::new(BatcherState {
            source: Box::new(source),
            tasks: tasks.clone(),
            state: Mutex::default(),
        }))
    }

    /// Looks up at most [`MAX_BATCH`] digests. Returns one result per digest, in the same order. The results are not older
    /// than the call.
    ///
    /// # Errors
    /// The source is not available, or too slow.
    pub async fn introspect_all(&self, digests: Vec<TokenDigest>) -> BatchResult {
        let (reply, result) = oneshot::channel();
        self.0.enqueue(Request { digests, reply, origin: Origin::current() })?;
        match timeout(LOOKUP_TIMEOUT, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(Unavailable::because("lookup timed out")),
        }
    }
}

#[async_trait::async_trait]
impl CredentialVerifier for IntrospectionBatcher {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        Ok(self.introspect_all(vec![digest]).await?.pop().flatten())
    }
}

impl BatcherState {
    fn enqueue(self: &Arc<Self>, request: Request) -> Result<(), Unavailable> {
        let mut state = self.state.lock();
        if state.queued_digests + request.digests.len() > MAX_QUEUED {
            return Err(Unavailable::because("too many queued lookups"));
        }
        state.queued_digests += request.digests.len();
        state.queue.push_back(request);
        if state.in_flight < MAX_IN_FLIGHT {
            state.in_flight += 1;
            // A separate task: a batch has many callers, and each can disconnect.
            self.tasks.spawn_short(Arc::clone(self).work());
        }
        Ok(())
    }

    async fn work(self: Arc<Self>) {
        while let Some(requests) = self.take_batch() {
            self.look_up(requests).await;
        }
    }

    /// Removes the next batch from the queue. If the queue is empty, ends the worker under the same lock, so that the next
    /// request starts a new one.
    fn take_batch(&self) -> Option<Vec<Request>> {
        let mut state = self.state.lock();
        let (mut batch, mut digests) = (Vec::new(), 0);
        while let Some(next) = state.queue.front() {
            if digests > 0 && digests + next.digests.len() > MAX_BATCH {
                break;
            }
            let Some(request) = state.queue.pop_front() else { break };
            state.queued_digests -= request.digests.len();
            if !request.reply.is_closed() {
                digests += request.digests.len();
                batch.push(request);
            }
        }
        if batch.is_empty() {
            state.in_flight -= 1;
            return None;
        }
        Some(batch)
    }

    async fn look_up(&self, requests: Vec<Request>) {
        let (digests, indices) = distinct(&requests);
        let lookup = async {
            // A batch belongs to the trace of its first request.
            match requests.first().and_then(|request| request.origin.as_ref()) {
                Some(origin) => origin.resume("introspection.batch", self.source.look_up(&digests)).await,
                None => self.source.look_up(&digests).await,
            }
        };
        // A panic must not end the worker, because `in_flight` would never decrease.
        let lookup = AssertUnwindSafe(lookup).catch_unwind();
        let results = match timeout(LOOKUP_TIMEOUT, lookup).await {
            Ok(Ok(Ok(results))) if results.len() == digests.len() => Ok(results),
            Ok(Ok(Ok(_))) => Err(Unavailable::because("wrong number of results")),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(Unavailable::because("the lookup panicked")),
            Err(_) => Err(Unavailable::because("lookup timed out")),
        };
        let mut indices = indices.into_iter();
        for request in requests {
            let own = indices.by_ref().take(request.digests.len());
            let result = match &results {
                Ok(results) => Ok(own.map(|index| results[index].clone()).collect()),
                Err(error) => Err(error.clone()),
            };
            // Fails only if the caller has disconnected.
            let _ = request.reply.send(result);
        }
    }
}

/// Returns the distinct digests, and for every digest of the requests its index among them.
fn distinct(requests: &[Request]) -> (Vec<TokenDigest>, Vec<usize>) {
    let (mut digests, mut seen) = (Vec::new(), HashMap::new());
    let all = requests.iter().flat_map(|request| &request.digests);
    let indices = all.map(|digest| {
        *seen.entry(*digest).or_insert_with(|| {
            digests.push(*digest);
            digests.len() - 1
        })
    });
    let indices = indices.collect();
    (digests, indices)
}

#[cfg(test)]
mod tests;
