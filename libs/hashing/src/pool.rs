//! A fixed number of threads that hash passwords, behind a bounded queue.
//!
//! Each worker owns one arena for ever, so peak memory is workers × memory cost, however many logins arrive. A request
//! that cannot start in time is refused; a request whose caller is gone before it starts is skipped; one that has
//! started runs to its end, because its memory is in use until then whoever waits.

mod metrics;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::metrics::HashMetrics;
use crate::argon::Arena;
use crate::{Argon2Settings, Entropy, Password, PasswordDigest, SettingsError};

/// How long a request may wait for a worker.
const QUEUE_LIMIT: Duration = Duration::from_secs(2);
/// Requests that may wait, for each worker: more could not start within [`QUEUE_LIMIT`] anyway, at 60 ms a hash or more.
const QUEUE_PER_WORKER: usize = 32;
/// How much lower than the rest of the process the workers' priority is, so that a storm of logins does not slow
/// session checks. Linux keeps a nice value per thread.
const NICENESS: i32 = 10;

/// How many hashes may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize(usize);

impl PoolSize {
    /// A chosen number of workers, at least one.
    pub fn new(workers: usize) -> Self {
        Self(workers.max(1))
    }

    /// One worker a core, and no more than fit into half of the memory limit, if there is one. More workers than
    /// cores only add memory: the work is bound by the processor.
    pub fn from_machine(settings: &Argon2Settings, memory_limit: Option<u64>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let fitting = memory_limit.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes / 2).unwrap_or(usize::MAX) / settings.memory_bytes().max(1)
        });
        Self::new(cores.min(fitting))
    }

    /// The number of workers.
    pub fn workers(self) -> usize {
        self.0
    }
}

/// No worker became free in time; the caller should come back later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked at once")]
pub struct Overloaded;

/// What a verification found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the password.
    Match,
    /// It is not, or there is none.
    Mismatch,
}

/// The pool. Dropping it ends the workers once they have finished what they are at.
pub struct HashPool {
    settings: Argon2Settings,
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    capacity: usize,
    metrics: HashMetrics,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    claim: Arc<Claim>,
    password: Password,
    work: Work,
}

enum Work {
    Hash(oneshot::Sender<PasswordDigest>),
    Verify(Option<PasswordDigest>, oneshot::Sender<Verdict>),
}

/// Who may go on with a job: a worker, or the caller who gives it up. Exactly one of them.
#[derive(Default)]
struct Claim(AtomicU8);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Claim {
    fn take(&self, state: u8) -> bool {
        self.0.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Gives the job up when the caller's future is dropped.
struct Caller(Arc<Claim>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.take(GIVEN_UP);
    }
}

impl HashPool {
    /// Starts the workers.
    ///
    /// # Errors
    /// Settings that do not validate.
    ///
    /// # Panics
    /// When the system has no room for a handful of threads.
    pub fn start(
        settings: Argon2Settings,
        size: PoolSize,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, SettingsError> {
        settings.validate()?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            capacity: size.workers() * QUEUE_PER_WORKER,
            metrics: HashMetrics::default(),
        });
        shared.metrics.workers.set(i64::try_from(size.workers()).unwrap_or(i64::MAX));
        for number in 0..size.workers() {
            let (shared, entropy) = (Arc::clone(&shared), Arc::clone(entropy));
            let spawned = std::thread::Builder::new()
                .name(format!("hash-{number}"))
                .spawn(move || work(&shared, &settings, &*entropy));
            if let Err(error) = spawned {
                panic!("cannot start a hash worker: {error}");
            }
        }
        Ok(Self { settings, shared })
    }

    /// Shows the pool in a registry. There is one pool a process.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
    }

    /// How new passwords are hashed.
    pub fn settings(&self) -> &Argon2Settings {
        &self.settings
    }

    /// Whether a request that came now would have a place. Whoever asks this first spares a storm's requests everything that
    /// comes before the hash.
    ///
    /// # Errors
    /// [`Overloaded`] when as many wait as can be served in time.
    pub fn check_room(&self) -> Result<(), Overloaded> {
        if self.shared.lock().has_room(self.shared.capacity) { Ok(()) } else { Err(self.shared.shed()) }
    }

    /// Hashes a new password. Cancel-safe: a dropped call that has not started costs nothing.
    ///
    /// # Errors
    /// [`Overloaded`] when no worker is free within 2 s.
    pub async fn hash(&self, password: Password) -> Result<PasswordDigest, Overloaded> {
        let (done, result) = oneshot::channel();
        self.run(password, Work::Hash(done), result).await
    }

    /// Checks a password against what is stored; with `None`, costs the same and never matches. Cancel-safe like
    /// [`Self::hash`].
    ///
    /// # Errors
    /// [`Overloaded`] when no worker is free within 2 s.
    pub async fn verify(
        &self,
        password: Password,
        stored: Option<PasswordDigest>,
    ) -> Result<Verdict, Overloaded> {
        let (done, result) = oneshot::channel();
        self.run(password, Work::Verify(stored, done), result).await
    }

    async fn run<T>(
        &self,
        password: Password,
        work: Work,
        mut result: oneshot::Receiver<T>,
    ) -> Result<T, Overloaded> {
        let deadline = Instant::now() + QUEUE_LIMIT;
        let claim = Arc::new(Claim::default());
        let _caller = Caller(Arc::clone(&claim));
        self.shared.push(Job { claim: Arc::clone(&claim), password, work })?;
        if let Ok(done) = tokio::time::timeout_at(deadline, &mut result).await {
            return done.map_err(|_| Overloaded);
        }
        if claim.take(GIVEN_UP) {
            return Err(self.shared.shed());
        }
        result.await.map_err(|_| Overloaded)
    }
}

impl Drop for HashPool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Queue {
    /// What was given up holds no place against somebody who still waits.
    fn has_room(&mut self, capacity: usize) -> bool {
        if self.jobs.len() >= capacity {
            self.jobs.retain(|job| job.claim.0.load(Ordering::Acquire) == WAITING);
        }
        self.jobs.len() < capacity
    }

    fn len(&self) -> i64 {
        i64::try_from(self.jobs.len()).unwrap_or(i64::MAX)
    }
}

impl Shared {
    fn shed(&self) -> Overloaded {
        self.metrics.shed.inc();
        Overloaded
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> Result<(), Overloaded> {
        let mut queue = self.lock();
        if !queue.has_room(self.capacity) {
            return Err(self.shed());
        }
        queue.jobs.push_back(job);
        self.metrics.queued.set(queue.len());
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// The next job that somebody still waits for; `None` when the pool is gone.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            while let Some(job) = queue.jobs.pop_front() {
                self.metrics.queued.set(queue.len());
                if job.claim.take(STARTED) {
                    return Some(job);
                }
            }
            if queue.closed {
                return None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn work(shared: &Shared, settings: &Argon2Settings, entropy: &dyn Entropy) {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "a hash worker keeps its normal priority");
    }
    let mut arena = Arena::default();
    while let Some(Job { password, work, .. }) = shared.next() {
        let began = std::time::Instant::now();
        // A receiver that is gone is a caller that hung up; the work is done all the same.
        match work {
            Work::Hash(done) => {
                if let Some(digest) = arena.hash(settings, entropy, &password) {
                    let _ = done.send(digest);
                }
            }
            Work::Verify(Some(stored), done) => {
                let matches = arena.verify(settings, &password, &stored);
                let _ = done.send(if matches { Verdict::Match } else { Verdict::Mismatch });
                arena.shrink_to(settings);
            }
            Work::Verify(None, done) => {
                arena.dummy(settings, &password);
                let _ = done.send(Verdict::Mismatch);
            }
        }
        shared.metrics.seconds.observe(began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemEntropy;

    fn pool(workers: usize) -> HashPool {
        let cheap =
            Argon2Settings { time_cost: 1, memory_cost: 64, parallelism: 1, ..Argon2Settings::default() };
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        HashPool::start(cheap, PoolSize::new(workers), &entropy).unwrap()
    }

    /// A pool whose only worker never comes, so that what is queued stays queued.
    fn stuck() -> HashPool {
        let shared = Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            capacity: 2,
            metrics: HashMetrics::default(),
        };
        HashPool { settings: Argon2Settings::default(), shared: Arc::new(shared) }
    }

    #[tokio::test]
    async fn a_password_verifies_against_its_own_digest_only() {
        let pool = pool(2);
        let digest = pool.hash(Password::new("correct horse")).await.unwrap();
        let verdict = |text: &'static str, stored| pool.verify(Password::new(text), stored);
        assert_eq!(verdict("correct horse", Some(digest.clone())).await, Ok(Verdict::Match));
        assert_eq!(verdict("wrong horse", Some(digest)).await, Ok(Verdict::Mismatch));
        assert_eq!(verdict("correct horse", None).await, Ok(Verdict::Mismatch));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_cannot_start_within_two_seconds_is_refused() {
        let pool = stuck();
        let began = Instant::now();
        assert_eq!(pool.hash(Password::new("x")).await.unwrap_err(), Overloaded);
        assert_eq!(began.elapsed(), QUEUE_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_at_once_and_forgets_who_hung_up() {
        let pool = stuck();
        let (first, second) = (pool.hash(Password::new("1")), pool.hash(Password::new("2")));
        let mut waiting = Box::pin(async { tokio::join!(first, second) });
        assert_eq!(pool.check_room(), Ok(()));
        assert!(futures_poll(&mut waiting).is_none());
        assert_eq!(pool.check_room(), Err(Overloaded));
        let began = Instant::now();
        assert_eq!(pool.hash(Password::new("3")).await.unwrap_err(), Overloaded);
        assert_eq!(began.elapsed(), Duration::ZERO);
        drop(waiting);
        assert_eq!(pool.check_room(), Ok(()));
        // Both places are free again: this one waits its two seconds.
        assert_eq!(pool.hash(Password::new("4")).await.unwrap_err(), Overloaded);
        assert_eq!(began.elapsed(), QUEUE_LIMIT);
    }

    fn futures_poll<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn the_size_follows_memory_when_that_is_scarcer_than_cores() {
        let settings = Argon2Settings::default();
        assert_eq!(PoolSize::from_machine(&settings, Some(129 << 20)).workers(), 1);
        assert_eq!(PoolSize::from_machine(&settings, Some(1)).workers(), 1);
        assert!(PoolSize::from_machine(&settings, None).workers() >= 1);
    }
}
