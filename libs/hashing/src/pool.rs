//! Fixed pool of threads that hash passwords, with a bounded queue.
//!
//! Each worker owns one arena, so the memory is workers × memory cost, independent of the number of logins. Digests that need more share
//! the same budget (see `memory`). An idle worker returns its memory. A request that cannot start in time is rejected. The queue
//! decides which requests start first (see `queue`). A request that its caller has dropped before the start is skipped. A request that
//! has started always completes, because its memory is in use until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::argon::Arena;
use crate::kernel::Kernel;
use crate::memory::MemoryBudget;
use crate::metrics::HashMetrics;
use crate::queue::{Full, Queue};
use crate::{
    Argon2Settings, Entropy, HashKernel, Password, PasswordDigest, Requester, SettingsError, StoredPassword,
};

/// Maximum time that a request waits for a worker.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without a hash after which a worker returns its memory. The next hash then takes 5 ms longer with huge pages, otherwise 35 ms.
const MEMORY_IDLE: Duration = Duration::from_mins(1);
/// Nice value of the workers. A lower priority than the rest of the process keeps a peak of logins from slowing session
/// checks. Linux has a nice value per thread. With 5, a worker gets a third of the time of another thread; with 10 it gets a tenth, and
/// next to a compiler on the machine of a developer, a login takes longer than a request may.
const NICENESS: i32 = 5;

/// Number of hashes that can run in parallel, and their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    workers: usize,
    memory_limit: Option<u64>,
}

impl PoolSize {
    /// Uses a fixed number of workers, at least one.
    pub fn new(workers: usize) -> Self {
        Self { workers: workers.max(1), memory_limit: None }
    }

    /// The same workers in a process with this memory limit in bytes. Hashes use at most half of it, or the memory of all workers with
    /// the settings if that is more.
    #[must_use]
    pub fn with_memory_limit(self, memory_limit: Option<u64>) -> Self {
        Self { memory_limit, ..self }
    }

    /// Uses one worker per core, but no more than fit into half of the memory limit. More workers than cores would only
    /// use more memory, because hashing is CPU-bound.
    pub fn fitting(settings: &Argon2Settings, cores: usize, memory_limit: Option<u64>) -> Self {
        let half = Self::new(1).with_memory_limit(memory_limit).half();
        Self::new(cores.min(half / settings.memory_bytes().max(1))).with_memory_limit(memory_limit)
    }

    fn half(self) -> usize {
        self.memory_limit.map_or(usize::MAX, |bytes| usize::try_from(bytes / 2).unwrap_or(usize::MAX))
    }

    fn budget(self, settings: &Argon2Settings) -> usize {
        self.half().max(self.workers * settings.memory_bytes())
    }

    /// Returns the number of workers.
    pub fn workers(self) -> usize {
        self.workers
    }
}

/// No worker was free in time. The caller should retry later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("password hash queue is full; retry later")]
pub struct Overloaded;

/// Pool of hash workers. Dropping the pool stops each worker after its current job.
pub struct HashPool {
    settings: Argon2Settings,
    shared: Arc<PoolState>,
    kernel: Arc<Kernel>,
}

struct PoolState {
    state: Mutex<State>,
    memory_idle: Duration,
    wake: Arc<Condvar>,
    metrics: HashMetrics,
}

struct State {
    queue: Queue<Job>,
    closed: bool,
}

struct Job {
    claim: Arc<Claim>,
    password: Password,
    work: Work,
}

enum Work {
    Hash(oneshot::Sender<PasswordDigest>),
    Verify(StoredPassword, oneshot::Sender<bool>),
}

/// State of a job. It leaves `QUEUED` once: either a worker starts it or the caller cancels it.
#[derive(Default)]
struct Claim(AtomicU8);

const QUEUED: u8 = 0;
const STARTED: u8 = 1;
const CANCELLED: u8 = 2;

impl Claim {
    fn take(&self, state: u8) -> bool {
        self.0.compare_exchange(QUEUED, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Cancels the job when the caller's future is dropped.
struct CancelOnDrop(Arc<Claim>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.take(CANCELLED);
    }
}

impl HashPool {
    /// Starts the workers.
    ///
    /// # Errors
    /// The settings are invalid.
    ///
    /// # Panics
    /// The system cannot start the threads.
    pub fn start(
        settings: Argon2Settings,
        size: PoolSize,
        kernel: HashKernel,
        entropy: &Arc<dyn Entropy>,
    ) -> Result<Self, SettingsError> {
        settings.validate()?;
        let kernel = Arc::new(Kernel::new(kernel));
        tracing::info!(kernel = kernel.name(), workers = size.workers(), "hash pool started");
        Ok(Self::start_with(settings, PoolState::new(size, MEMORY_IDLE), size, kernel, entropy))
    }

    fn start_with(
        settings: Argon2Settings,
        shared: PoolState,
        size: PoolSize,
        kernel: Arc<Kernel>,
        entropy: &Arc<dyn Entropy>,
    ) -> Self {
        let shared = Arc::new(shared);
        shared.metrics.workers.set(i64::try_from(size.workers()).unwrap_or(i64::MAX));
        let (wake, used) = (Arc::clone(&shared.wake), shared.metrics.memory.clone());
        let budget = Arc::new(MemoryBudget::new(size.budget(&settings), wake, used));
        for number in 0..size.workers() {
            let (shared, entropy) = (Arc::clone(&shared), Arc::clone(entropy));
            let arena = Arena::new(Arc::clone(&kernel), Arc::clone(&budget));
            let spawned = std::thread::Builder::new()
                .name(format!("hash-{number}"))
                .spawn(move || work(&shared, arena, &settings, &*entropy));
            if let Err(error) = spawned {
                panic!("failed to start hash worker: {error}");
            }
        }
        Self { settings, shared, kernel }
    }

    /// Registers the metrics of the pool. A process has one pool.
    pub fn register(&self, registry: &mut Registry) {
        self.kernel.register(registry);
        self.shared.metrics.register(registry);
    }

    /// Returns the parameters of new hashes.
    pub fn settings(&self) -> &Argon2Settings {
        &self.settings
    }

    /// Checks that the queue has a place for a request. A request that is rejected here skips the work before its hash.
    ///
    /// # Errors
    /// [`Overloaded`] if the queue has no place for the requester.
    pub fn check_capacity(&self, requester: &Requester) -> Result<(), Overloaded> {
        self.shared.state.lock().queue.turn(requester).map(drop).map_err(|Full| self.shared.shed())
    }

    /// Hashes a new password. Cancel-safe: a dropped call that has not started costs nothing.
    ///
    /// # Errors
    /// [`Overloaded`] if no worker is free within 2 s.
    pub async fn hash(&self, requester: Requester, password: Password) -> Result<PasswordDigest, Overloaded> {
        let (done, result) = oneshot::channel();
        self.run(requester, password, Work::Hash(done), result).await
    }

    /// Returns whether a password matches a stored one. Cancel-safe like [`Self::hash`].
    ///
    /// # Errors
    /// [`Overloaded`] if no worker is free within 2 s.
    pub async fn verify(
        &self,
        requester: Requester,
        password: Password,
        stored: StoredPassword,
    ) -> Result<bool, Overloaded> {
        let (done, result) = oneshot::channel();
        self.run(requester, password, Work::Verify(stored, done), result).await
    }

    async fn run<T>(
        &self,
        requester: Requester,
        password: Password,
        work: Work,
        mut result: oneshot::Receiver<T>,
    ) -> Result<T, Overloaded> {
        let deadline = Instant::now() + QUEUE_TIMEOUT;
        let claim = Arc::new(Claim::default());
        let _cancel = CancelOnDrop(Arc::clone(&claim));
        self.shared.push(requester, Job { claim: Arc::clone(&claim), password, work })?;
        // The sender is dropped if the queue sheds the job for another requester.
        if let Ok(done) = tokio::time::timeout_at(deadline, &mut result).await {
            return done.map_err(|_| Overloaded);
        }
        if claim.take(CANCELLED) {
            return Err(self.shared.shed());
        }
        result.await.map_err(|_| Overloaded)
    }
}

impl Drop for HashPool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl PoolState {
    fn new(size: PoolSize, memory_idle: Duration) -> Self {
        let is_stale = |job: &Job| job.claim.0.load(Ordering::Acquire) != QUEUED;
        let state = State { queue: Queue::new(size.workers(), is_stale), closed: false };
        Self { state: Mutex::new(state), memory_idle, wake: Arc::default(), metrics: HashMetrics::default() }
    }

    fn shed(&self) -> Overloaded {
        self.metrics.shed.inc();
        Overloaded
    }

    fn push(&self, requester: Requester, job: Job) -> Result<(), Overloaded> {
        let mut state = self.state.lock();
        let shed = state.queue.push(requester, job).map_err(|Full| self.shed())?;
        self.metrics.set_queue_length(state.queue.len());
        drop(state);
        if shed.is_some() {
            self.shed();
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for the next job that is not cancelled. Releases the memory of the worker when it is idle, or another one waits for it.
    /// Returns `None` when the pool is dropped.
    fn next(&self, arena: &mut Arena) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.queue.pop() {
                self.metrics.set_queue_length(state.queue.len());
                if job.claim.take(STARTED) {
                    return Some(job);
                }
            }
            if state.closed {
                return None;
            }
            if arena.is_empty() {
                self.wake.wait(&mut state);
                continue;
            }
            if self.wake.wait_for(&mut state, self.memory_idle).timed_out() || arena.is_awaited() {
                // Takes milliseconds, during which other threads can use the queue.
                drop(state);
                arena.release();
                state = self.state.lock();
            }
        }
    }
}

fn work(shared: &PoolState, mut arena: Arena, settings: &Argon2Settings, entropy: &dyn Entropy) {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "failed to lower priority of hash worker");
    }
    while let Some(Job { password, work, .. }) = shared.next(&mut arena) {
        let start = std::time::Instant::now();
        // Recorded before the caller continues: metrics that are read after its response contain the hash.
        let record = || shared.metrics.duration.observe(start.elapsed().as_secs_f64());
        // A send fails if the caller is gone. Without a result, because the memory does not suffice, the caller gets `Overloaded`.
        match work {
            Work::Hash(done) => {
                let digest = arena.hash(settings, entropy, &password);
                record();
                digest.map(|digest| done.send(digest));
            }
            Work::Verify(stored, done) => {
                let matches = match stored {
                    StoredPassword::Digest(stored) => arena.verify(settings, &password, &stored),
                    StoredPassword::Missing(cost) => arena.dummy(&cost, &password),
                };
                record();
                matches.map(|matches| done.send(matches));
                arena.release_above(settings);
            }
        }
        if arena.is_awaited() {
            arena.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, SystemEntropy};

    fn pool(workers: usize, memory_idle: Duration) -> HashPool {
        let cheap =
            Argon2Settings { time_cost: 1, memory_cost: 64, parallelism: 1, ..Argon2Settings::default() };
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let (size, kernel) = (PoolSize::new(workers), Arc::new(Kernel::new(HashKernel::Auto)));
        HashPool::start_with(cheap, PoolState::new(size, memory_idle), size, kernel, &entropy)
    }

    /// Creates a pool without workers, so that jobs stay queued. The queue is that of one worker.
    fn pool_without_workers() -> HashPool {
        HashPool {
            settings: Argon2Settings::default(),
            shared: Arc::new(PoolState::new(PoolSize::new(1), MEMORY_IDLE)),
            kernel: Arc::new(Kernel::new(HashKernel::Crate)),
        }
    }

    fn requester() -> Requester {
        Requester::new(Lane::Open, [("192.0.2.1".to_owned(), 1)])
    }

    #[tokio::test]
    async fn a_password_matches_only_its_own_digest() {
        let pool = pool(2, MEMORY_IDLE);
        let digest = pool.hash(requester(), Password::new("correct horse")).await.unwrap();
        let verify = |text: &'static str, stored| pool.verify(requester(), Password::new(text), stored);
        assert_eq!(verify("correct horse", StoredPassword::Digest(digest.clone())).await, Ok(true));
        assert_eq!(verify("wrong horse", StoredPassword::Digest(digest)).await, Ok(false));
        assert_eq!(verify("correct horse", StoredPassword::Missing(*pool.settings())).await, Ok(false));
    }

    #[tokio::test]
    async fn an_idle_worker_returns_its_memory_and_the_next_hash_reserves_it_again() {
        let pool = pool(1, Duration::from_millis(1));
        for _ in 0..2 {
            let digest = pool.hash(requester(), Password::new("correct horse")).await.unwrap();
            assert_eq!(
                pool.verify(requester(), Password::new("correct horse"), StoredPassword::Digest(digest))
                    .await,
                Ok(true)
            );
            let deadline = std::time::Instant::now() + Duration::from_secs(10);
            while pool.shared.metrics.memory.get() > 0 {
                assert!(std::time::Instant::now() < deadline, "the memory is not returned");
                tokio::task::yield_now().await;
            }
        }
    }

    /// A pool of two workers that hash with 64 KiB, in a process with a memory limit of 1 MiB, and digests of other settings.
    async fn pool_with_digests(memory_costs: &[u32]) -> (HashPool, Vec<StoredPassword>) {
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let settings = |memory_cost| Argon2Settings {
            time_cost: 1,
            memory_cost,
            parallelism: 1,
            ..Argon2Settings::default()
        };
        let start = |memory_cost, size| {
            HashPool::start(settings(memory_cost), size, HashKernel::Auto, &entropy).unwrap()
        };
        let mut stored = Vec::new();
        for memory_cost in memory_costs {
            let pool = start(*memory_cost, PoolSize::new(1));
            let digest = pool.hash(requester(), Password::new("correct horse")).await.unwrap();
            stored.push(StoredPassword::Digest(digest));
        }
        (start(64, PoolSize::new(2).with_memory_limit(Some(1 << 20))), stored)
    }

    #[tokio::test]
    async fn digests_that_need_more_memory_than_the_settings_are_verified_within_the_memory_of_the_process() {
        let (pool, stored) = pool_with_digests(&[64, 400, 512]).await;
        let most = Arc::new(AtomicU8::new(0));
        let verify = async |stored: &StoredPassword| {
            let verified = pool.verify(requester(), Password::new("correct horse"), stored.clone()).await;
            let used = pool.shared.metrics.memory.get() / (64 << 10);
            most.fetch_max(u8::try_from(used).unwrap(), Ordering::Relaxed);
            assert_eq!(verified, Ok(true));
        };
        for _ in 0..20 {
            // Two workers keep 64 KiB each before they verify digests that need everything.
            let [small, large, largest] = &stored[..] else { panic!("three digests") };
            tokio::join!(
                verify(small),
                verify(largest),
                verify(small),
                verify(large),
                verify(largest),
                verify(small)
            );
        }
        assert!(most.load(Ordering::Relaxed) <= 8, "at most 512 KiB: {most:?} times 64 KiB");
    }

    #[tokio::test]
    async fn a_digest_that_needs_more_memory_than_the_process_has_rejects_the_login_and_is_no_wrong_password()
    {
        let (pool, stored) = pool_with_digests(&[516, 64]).await;
        let verify = |stored: &StoredPassword| {
            pool.verify(requester(), Password::new("correct horse"), stored.clone())
        };
        assert_eq!(verify(&stored[0]).await, Err(Overloaded));
        let missing = Argon2Settings { memory_cost: 516, ..*pool.settings() };
        assert_eq!(
            verify(&StoredPassword::Missing(missing)).await,
            Err(Overloaded),
            "as an account without a password"
        );
        assert_eq!(verify(&stored[1]).await, Ok(true));
    }

    #[test]
    fn the_workers_end_with_the_pool() {
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let settings = Argon2Settings { memory_cost: 64, ..Argon2Settings::default() };
        let pool = HashPool::start(settings, PoolSize::new(2), HashKernel::Auto, &entropy).unwrap();
        assert_eq!(*pool.settings(), settings);
        assert_eq!(Arc::strong_count(&entropy), 3);
        drop(pool);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&entropy) > 1 {
            assert!(std::time::Instant::now() < deadline, "a worker is still running");
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn the_metrics_count_workers_and_hashes() {
        let pool = pool(2, MEMORY_IDLE);
        pool.hash(requester(), Password::new("correct horse")).await.unwrap();
        let (mut registry, mut text) = (Registry::default(), String::new());
        pool.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "hash_workers 2",
            "hash_duration_seconds_count 1",
            "hash_memory_bytes 65536",
            "hash_shed_total 0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_worker_keeps_its_memory_for_the_next_hash() {
        let pool = pool(1, MEMORY_IDLE);
        pool.hash(requester(), Password::new("correct horse")).await.unwrap();
        assert_eq!(pool.shared.metrics.memory.get(), 64 * 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn rejects_a_request_that_cannot_start_within_two_seconds() {
        let pool = pool_without_workers();
        let start = Instant::now();
        assert_eq!(pool.hash(requester(), Password::new("x")).await.unwrap_err(), Overloaded);
        assert_eq!(start.elapsed(), QUEUE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_rejects_at_once_and_drops_cancelled_jobs() {
        let pool = pool_without_workers();
        let hash = |n: usize| pool.hash(requester(), Password::new(n.to_string()));
        let mut waiting: Vec<_> = (0..).map(hash).map(Box::pin).take(16).collect();
        for hash in &mut waiting {
            assert_eq!(pool.check_capacity(&requester()), Ok(()));
            assert!(futures_poll(hash).is_none());
        }
        assert_eq!(pool.check_capacity(&requester()), Err(Overloaded));
        let start = Instant::now();
        assert_eq!(hash(16).await.unwrap_err(), Overloaded);
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop(waiting);
        assert_eq!(pool.check_capacity(&requester()), Ok(()));
        // The queue is empty again, so this request waits for two seconds.
        assert_eq!(hash(17).await.unwrap_err(), Overloaded);
        assert_eq!(start.elapsed(), QUEUE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_shed_for_another_client_is_rejected_at_once() {
        let pool = pool_without_workers();
        let hash = |network: &str| {
            let requester = Requester::new(Lane::Open, [(network.to_owned(), 1)]);
            Box::pin(pool.hash(requester, Password::new("x")))
        };
        let mut waiting: Vec<_> = (0..16).map(|_| hash("192.0.2.1")).collect();
        assert!(waiting.iter_mut().all(|hash| futures_poll(hash).is_none()));
        assert_eq!(pool.shared.metrics.queue_length.get(), 16);
        let mut other = hash("192.0.2.2");
        assert!(futures_poll(&mut other).is_none());
        assert_eq!(futures_poll(&mut waiting[15]), Some(Err(Overloaded)));
        assert_eq!(futures_poll(&mut waiting[14]), None);
        assert_eq!(pool.shared.metrics.shed.get(), 1);
    }

    fn futures_poll<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn the_memory_limit_bounds_the_number_of_workers() {
        let settings = Argon2Settings::default();
        assert_eq!(PoolSize::fitting(&settings, 4, Some(129 << 20)).workers(), 1);
        assert_eq!(PoolSize::fitting(&settings, 4, Some(3 * (128 << 20))).workers(), 3);
        assert_eq!(PoolSize::fitting(&settings, 4, Some(1)).workers(), 1);
        assert_eq!(PoolSize::fitting(&settings, 4, None).workers(), 4);
    }
}
