//! Gathers look-ups. One that comes while nothing is under way starts at once; those that come meanwhile go together in the
//! next, so that the rate grows with the load and nobody waits for company.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use hashing::TokenDigest;
use service::Tasks;
use service::telemetry::Origin;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{CredentialVerifier, Introspection, Introspector, Unavailable};

/// At most so many credentials in one look-up.
pub const MAX_BATCH: usize = 256;
/// Look-ups under way. One would gather best; a second one goes on when the first is stuck on a connection that has died.
const UNDER_WAY: usize = 2;
/// Credentials that wait. Beyond this a look-up would come too late for whoever asks.
const MOST_WAITING: usize = 16 * 1024;
/// A look-up takes a millisecond; whoever has waited longer than this is better told to come back.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

type Answer = Result<Vec<Introspection>, Unavailable>;

/// Asks for many callers at once. Clones share everything.
#[derive(Clone)]
pub struct IntrospectionBatcher(Arc<Shared>);

struct Shared {
    source: Box<dyn Introspector>,
    tasks: Tasks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Question>,
    digests: usize,
    under_way: usize,
}

/// What one caller asks.
struct Question {
    digests: Vec<TokenDigest>,
    answer: oneshot::Sender<Answer>,
    origin: Option<Origin>,
}

impl IntrospectionBatcher {
    /// Gathers look-ups in this source.
    pub fn new(source: impl Introspector + 'static, tasks: &Tasks) -> Self {
        Self(Arc::new(Shared { source: Box::new(source), tasks: tasks.clone(), state: Mutex::default() }))
    }

    /// One answer a digest, in order, as of a moment after the call. At most [`MAX_BATCH`] digests.
    ///
    /// # Errors
    /// The source cannot answer, or not in time.
    pub async fn introspect_all(&self, digests: Vec<TokenDigest>) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.0.enqueue(Question { digests, answer, origin: Origin::current() })?;
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Unavailable::because("no answer came in time")),
        }
    }
}

#[async_trait::async_trait]
impl CredentialVerifier for IntrospectionBatcher {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        Ok(self.introspect_all(vec![digest]).await?.pop().flatten())
    }
}

impl Shared {
    fn enqueue(self: &Arc<Self>, question: Question) -> Result<(), Unavailable> {
        let mut state = self.lock();
        if state.digests + question.digests.len() > MOST_WAITING {
            return Err(Unavailable::because("too many look-ups wait"));
        }
        state.digests += question.digests.len();
        state.waiting.push_back(question);
        if state.under_way < UNDER_WAY {
            state.under_way += 1;
            // A task of its own: the look-up is many callers' affair, and any of them may hang up.
            self.tasks.spawn_short(Arc::clone(self).work());
        }
        Ok(())
    }

    async fn work(self: Arc<Self>) {
        while let Some(questions) = self.take() {
            self.answer(questions).await;
        }
    }

    /// What goes into one look-up. That nothing is left and that this worker ends is one step, so that no question can come
    /// in between and find nobody.
    fn take(&self) -> Option<Vec<Question>> {
        let mut state = self.lock();
        let (mut taken, mut digests) = (Vec::new(), 0);
        while let Some(next) = state.waiting.front() {
            if digests > 0 && digests + next.digests.len() > MAX_BATCH {
                break;
            }
            let Some(question) = state.waiting.pop_front() else { break };
            state.digests -= question.digests.len();
            if !question.answer.is_closed() {
                digests += question.digests.len();
                taken.push(question);
            }
        }
        if taken.is_empty() {
            state.under_way -= 1;
            return None;
        }
        Some(taken)
    }

    async fn answer(&self, questions: Vec<Question>) {
        let (digests, places) = distinct(&questions);
        let looking = async {
            // It is many requests' affair, and belongs to the trace of the first.
            match questions.first().and_then(|question| question.origin.as_ref()) {
                Some(origin) => origin.resume("introspection.batch", self.source.look_up(&digests)).await,
                None => self.source.look_up(&digests).await,
            }
        };
        // A panic must not end the worker: its place would never be free again.
        let looking = AssertUnwindSafe(looking).catch_unwind();
        let found = match timeout(PATIENCE, looking).await {
            Ok(Ok(Ok(found))) if found.len() == digests.len() => Ok(found),
            Ok(Ok(Ok(_))) => Err(Unavailable::because("an answer of another length than the question")),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(Unavailable::because("the look-up panicked")),
            Err(_) => Err(Unavailable::because("the look-up took too long")),
        };
        let mut places = places.into_iter();
        for question in questions {
            let own = places.by_ref().take(question.digests.len());
            let answer = match &found {
                Ok(found) => Ok(own.map(|place| found[place].clone()).collect()),
                Err(error) => Err(error.clone()),
            };
            // Whoever asked may have hung up.
            let _ = question.answer.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each digest once, and for all digests of the questions in order, which of those it is.
fn distinct(questions: &[Question]) -> (Vec<TokenDigest>, Vec<usize>) {
    let (mut digests, mut known) = (Vec::new(), HashMap::new());
    let asked = questions.iter().flat_map(|question| &question.digests);
    let places = asked.map(|digest| {
        *known.entry(*digest).or_insert_with(|| {
            digests.push(*digest);
            digests.len() - 1
        })
    });
    let places = places.collect();
    (digests, places)
}

#[cfg(test)]
mod tests;
