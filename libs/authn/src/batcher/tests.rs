use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;

/// A source that answers when the test says so, and shows what it was asked.
struct Scripted {
    asked: mpsc::UnboundedSender<(Vec<TokenDigest>, oneshot::Sender<Answer>)>,
}

#[async_trait::async_trait]
impl Introspector for Scripted {
    async fn look_up(&self, digests: &[TokenDigest]) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.asked.send((digests.to_vec(), answer)).unwrap();
        answered.await.unwrap()
    }
}

type Asked = mpsc::UnboundedReceiver<(Vec<TokenDigest>, oneshot::Sender<Answer>)>;

fn scripted() -> (IntrospectionBatcher, Asked) {
    let (tell, asked) = mpsc::unbounded_channel();
    (IntrospectionBatcher::new(Scripted { asked: tell }, &Tasks::default()), asked)
}

fn digest(number: usize) -> TokenDigest {
    TokenDigest::of_text(&number.to_string())
}

/// Lets every task get as far as it can.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Asks for one after the other, each in a task of its own.
async fn ask_each(
    gather: &IntrospectionBatcher,
    numbers: std::ops::Range<usize>,
) -> JoinSet<Result<Introspection, Unavailable>> {
    let mut asking = JoinSet::new();
    for number in numbers {
        let gather = gather.clone();
        asking.spawn(async move { gather.introspect(digest(number)).await });
        settle().await;
    }
    asking
}

#[tokio::test(start_paused = true)]
async fn a_lone_look_up_starts_at_once_and_those_that_come_meanwhile_go_together() {
    let (gather, mut asked) = scripted();
    let first = ask_each(&gather, 0..UNDER_WAY).await;
    let mut under_way = Vec::new();
    for number in 0..UNDER_WAY {
        let (digests, answer) = asked.recv().await.unwrap();
        assert_eq!(digests, [digest(number)]);
        under_way.push(answer);
    }
    let later = ask_each(&gather, 10..20).await;
    assert!(asked.try_recv().is_err(), "no more are under way at once");
    under_way.pop().unwrap().send(Ok(vec![None])).unwrap();
    let (digests, answer) = asked.recv().await.unwrap();
    assert_eq!(digests, (10..20).map(digest).collect::<Vec<_>>());
    answer.send(Ok(vec![None; 10])).unwrap();
    assert!(later.join_all().await.iter().all(Result::is_ok));
    under_way.pop().unwrap().send(Ok(vec![None])).unwrap();
    assert!(first.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn one_look_up_holds_so_many_credentials_each_once_and_no_question_is_split() {
    let (gather, mut asked) = scripted();
    let _busy = ask_each(&gather, 0..UNDER_WAY).await;
    let mut blocking = Vec::new();
    for _ in 0..UNDER_WAY {
        blocking.push(asked.recv().await.unwrap().1);
    }
    let mut asking = JoinSet::new();
    for numbers in [0..200, 100..156, 300..500] {
        let gather = gather.clone();
        asking.spawn(async move { gather.introspect_all(numbers.map(digest).collect()).await });
        settle().await;
    }
    blocking.pop().unwrap().send(Ok(vec![None])).unwrap();
    assert_eq!(asked.recv().await.unwrap().0, (0..200).map(digest).collect::<Vec<_>>());
    blocking.pop().unwrap().send(Ok(vec![None])).unwrap();
    assert_eq!(asked.recv().await.unwrap().0, (300..500).map(digest).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_who_has_hung_up() {
    let (gather, mut asked) = scripted();
    let _busy = ask_each(&gather, 0..UNDER_WAY).await;
    let mut gone = ask_each(&gather, 10..20).await;
    gone.abort_all();
    while gone.join_next().await.is_some() {}
    let _waits = ask_each(&gather, 20..21).await;
    for number in (0..UNDER_WAY).chain([20]) {
        let (digests, answer) = asked.recv().await.unwrap();
        assert_eq!(digests, [digest(number)]);
        answer.send(Ok(vec![None])).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_holds_nobody_for_ever_and_its_place_becomes_free() {
    let (gather, mut asked) = scripted();
    let hanging = ask_each(&gather, 0..UNDER_WAY).await;
    assert!(hanging.join_all().await.iter().all(Result::is_err));
    for _ in 0..UNDER_WAY {
        asked.recv().await.unwrap();
    }
    let fine = ask_each(&gather, 0..1).await;
    asked.recv().await.unwrap().1.send(Ok(vec![None])).unwrap();
    assert!(fine.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn more_than_fit_are_told_to_come_back() {
    let (gather, _asked) = scripted();
    let _busy = ask_each(&gather, 0..UNDER_WAY).await;
    let digests: Vec<_> = (0..MAX_BATCH).map(digest).collect();
    let mut waiting = JoinSet::new();
    for _ in 0..MOST_WAITING / MAX_BATCH {
        let (gather, digests) = (gather.clone(), digests.clone());
        waiting.spawn(async move { gather.introspect_all(digests).await });
    }
    settle().await;
    assert!(gather.introspect(digest(0)).await.is_err());
}

/// Panics, answers too little, and then well.
struct Faulty(AtomicUsize);

#[async_trait::async_trait]
impl Introspector for Faulty {
    async fn look_up(&self, digests: &[TokenDigest]) -> Answer {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("on purpose"),
            1 => Ok(Vec::new()),
            _ => Ok(vec![None; digests.len()]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_faulty_answer_is_unavailability_and_the_next_look_up_goes_on() {
    let gather = IntrospectionBatcher::new(Faulty(AtomicUsize::new(0)), &Tasks::default());
    let outcomes = [
        gather.introspect(digest(0)).await.is_ok(),
        gather.introspect(digest(0)).await.is_ok(),
        gather.introspect(digest(0)).await.is_ok(),
    ];
    assert_eq!(outcomes, [false, false, true]);
}
