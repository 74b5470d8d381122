use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

/// A source that passes its lookups to the test.
struct Scripted {
    lookups: mpsc::UnboundedSender<(Vec<TokenDigest>, oneshot::Sender<BatchResult>)>,
}

#[async_trait::async_trait]
impl Introspector for Scripted {
    async fn look_up(&self, digests: &[TokenDigest]) -> BatchResult {
        let (reply, result) = oneshot::channel();
        self.lookups.send((digests.to_vec(), reply)).unwrap();
        result.await.unwrap()
    }
}

type Lookups = mpsc::UnboundedReceiver<(Vec<TokenDigest>, oneshot::Sender<BatchResult>)>;

fn scripted() -> (IntrospectionBatcher, Lookups) {
    let (sender, lookups) = mpsc::unbounded_channel();
    (IntrospectionBatcher::new(Scripted { lookups: sender }, &Tasks::default()), lookups)
}

fn digest(number: usize) -> TokenDigest {
    TokenDigest::from_text(&number.to_string())
}

/// Runs every task until it waits.
async fn run_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Starts one lookup per number, each in its own task.
async fn start_lookups(
    batcher: &IntrospectionBatcher,
    numbers: std::ops::Range<usize>,
) -> JoinSet<Result<Introspection, Unavailable>> {
    let mut callers = JoinSet::new();
    for number in numbers {
        let batcher = batcher.clone();
        callers.spawn(async move { batcher.introspect(digest(number)).await });
        run_tasks().await;
    }
    callers
}

#[tokio::test(start_paused = true)]
async fn first_lookup_starts_at_once_and_later_ones_form_a_batch() {
    let (batcher, mut lookups) = scripted();
    let first = start_lookups(&batcher, 0..MAX_IN_FLIGHT).await;
    let mut replies = Vec::new();
    for number in 0..MAX_IN_FLIGHT {
        let (digests, reply) = lookups.recv().await.unwrap();
        assert_eq!(digests, [digest(number)]);
        replies.push(reply);
    }
    let later = start_lookups(&batcher, 10..20).await;
    assert!(lookups.try_recv().is_err(), "the number of batches in flight is limited");
    replies.pop().unwrap().send(Ok(vec![None])).unwrap();
    let (digests, reply) = lookups.recv().await.unwrap();
    assert_eq!(digests, (10..20).map(digest).collect::<Vec<_>>());
    reply.send(Ok(vec![None; 10])).unwrap();
    assert!(later.join_all().await.iter().all(Result::is_ok));
    replies.pop().unwrap().send(Ok(vec![None])).unwrap();
    assert!(first.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn batch_is_bounded_without_duplicates_and_splits_no_request() {
    let (batcher, mut lookups) = scripted();
    let _busy = start_lookups(&batcher, 0..MAX_IN_FLIGHT).await;
    let mut blocking = Vec::new();
    for _ in 0..MAX_IN_FLIGHT {
        blocking.push(lookups.recv().await.unwrap().1);
    }
    let mut callers = JoinSet::new();
    for numbers in [0..200, 100..156, 300..500] {
        let batcher = batcher.clone();
        callers.spawn(async move { batcher.introspect_all(numbers.map(digest).collect()).await });
        run_tasks().await;
    }
    blocking.pop().unwrap().send(Ok(vec![None])).unwrap();
    assert_eq!(lookups.recv().await.unwrap().0, (0..200).map(digest).collect::<Vec<_>>());
    blocking.pop().unwrap().send(Ok(vec![None])).unwrap();
    assert_eq!(lookups.recv().await.unwrap().0, (300..500).map(digest).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn requests_of_disconnected_callers_are_skipped() {
    let (batcher, mut lookups) = scripted();
    let _busy = start_lookups(&batcher, 0..MAX_IN_FLIGHT).await;
    let mut gone = start_lookups(&batcher, 10..20).await;
    gone.abort_all();
    while gone.join_next().await.is_some() {}
    let _waits = start_lookups(&batcher, 20..21).await;
    for number in (0..MAX_IN_FLIGHT).chain([20]) {
        let (digests, reply) = lookups.recv().await.unwrap();
        assert_eq!(digests, [digest(number)]);
        reply.send(Ok(vec![None])).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn lookup_times_out_and_its_worker_continues() {
    let (batcher, mut lookups) = scripted();
    let hanging = start_lookups(&batcher, 0..MAX_IN_FLIGHT).await;
    assert!(hanging.join_all().await.iter().all(Result::is_err));
    for _ in 0..MAX_IN_FLIGHT {
        lookups.recv().await.unwrap();
    }
    let fine = start_lookups(&batcher, 0..1).await;
    lookups.recv().await.unwrap().1.send(Ok(vec![None])).unwrap();
    assert!(fine.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn lookups_beyond_the_queue_fail_at_once() {
    let (batcher, mut lookups) = scripted();
    let digests: Vec<_> = (0..MAX_BATCH).map(digest).collect();
    // The second time, the queue has become empty again.
    for _ in 0..2 {
        let busy = start_lookups(&batcher, 0..MAX_IN_FLIGHT).await;
        let mut waiting = JoinSet::new();
        for _ in 0..MAX_QUEUED / MAX_BATCH {
            let (batcher, digests) = (batcher.clone(), digests.clone());
            waiting.spawn(async move { batcher.introspect_all(digests).await });
        }
        run_tasks().await;
        assert!(waiting.try_join_next().is_none(), "all of them are queued");
        let started = Instant::now();
        assert!(batcher.introspect(digest(0)).await.is_err());
        assert_eq!(started.elapsed(), Duration::ZERO);
        for _ in 0..MAX_IN_FLIGHT + waiting.len() {
            let (digests, reply) = lookups.recv().await.unwrap();
            reply.send(Ok(vec![None; digests.len()])).unwrap();
        }
        assert!(busy.join_all().await.iter().all(Result::is_ok));
        assert!(waiting.join_all().await.iter().all(Result::is_ok));
    }
}

/// Panics, then returns too few results, then too many, then works.
struct Faulty(AtomicUsize);

#[async_trait::async_trait]
impl Introspector for Faulty {
    async fn look_up(&self, digests: &[TokenDigest]) -> BatchResult {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("on purpose"),
            1 => Ok(Vec::new()),
            2 => Ok(vec![None; digests.len() + 1]),
            _ => Ok(vec![None; digests.len()]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn faulty_source_is_unavailable_and_the_next_lookup_works() {
    let batcher = IntrospectionBatcher::new(Faulty(AtomicUsize::new(0)), &Tasks::default());
    let outcomes = [
        batcher.introspect(digest(0)).await.is_ok(),
        batcher.introspect(digest(0)).await.is_ok(),
        batcher.introspect(digest(0)).await.is_ok(),
        batcher.introspect(digest(0)).await.is_ok(),
    ];
    assert_eq!(outcomes, [false, false, false, true]);
}
