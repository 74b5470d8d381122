//! Every request gets one outcome and gives its room back, in whatever order things happen.

use bytes::Bytes;
use futures::FutureExt as _;
use proptest::prelude::*;
use tenancy::TenantId;

use super::*;
use crate::publisher::capacity::Capacity;
use crate::publisher::{Limits, PublishMetrics};
use crate::subject::AuditSubject;

const ROOM: Limits = Limits { messages: 400, bytes: 1 << 20 };

/// One request with a batch of its own, which holds its outcome.
fn request(capacity: &Capacity, deadline: Instant) -> (Pending, Arc<Batch>) {
    let tenant: TenantId = "acme".parse().unwrap();
    let subject = AuditSubject::new(Some(&tenant), "identity", "user_invited").unwrap();
    let message = Message::audit(&subject, "1", None, Bytes::new()).unwrap();
    let permit = capacity.take(&tenant, std::slice::from_ref(&message)).unwrap().remove(0);
    let batch = Batch::new(1, &Arc::new(PublishMetrics::default().of("UDM")));
    (Pending::new(message, permit, deadline, &batch, 0), batch)
}

#[test]
fn a_late_answer_finds_nobody_in_a_place_that_is_used_again() {
    let (capacity, slots) = (Capacity::new(ROOM), Slots::default());
    let (first, _) = request(&capacity, Instant::now());
    let (second, _) = request(&capacity, Instant::now());
    let old = slots.insert(first).unwrap();
    drop(slots.take(old));
    let new = slots.insert(second).unwrap();
    assert!(slots.take(old).is_none());
    assert!(slots.take(new).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Insert { late: bool },
    Answer(prop::sample::Index),
    Sweep,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(|late| Step::Insert { late }),
        4 => any::<prop::sample::Index>().prop_map(Step::Answer),
        1 => Just(Step::Sweep),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #[test]
    fn a_number_reads_back(index: u32, generation: u32) {
        let token = Token { index, generation };
        prop_assert_eq!(token.to_string().parse::<Token>(), Ok(token));
    }

    #[test]
    fn no_request_is_forgotten(steps in prop::collection::vec(step(), 0..80)) {
        let (capacity, slots) = (Capacity::new(ROOM), Slots::default());
        let (now, later) = (Instant::now(), Instant::now() + std::time::Duration::from_hours(1));
        let (mut tokens, mut batches, mut closed) = (Vec::new(), Vec::new(), false);
        for step in steps {
            match step {
                Step::Insert { late } => {
                    let (pending, batch) = request(&capacity, if late { later } else { now });
                    let token = slots.insert(pending);
                    prop_assert_eq!(token.is_none(), closed);
                    tokens.extend(token);
                    batches.push(batch);
                }
                Step::Answer(which) if !tokens.is_empty() => {
                    if let Some(pending) = slots.take(*which.get(&tokens)) {
                        pending.settle(Err(PublishError::StreamFull));
                    }
                }
                Step::Answer(_) => {}
                Step::Sweep => slots.take_expired(now).into_iter().for_each(|pending| {
                    assert_eq!(pending.deadline, now);
                    pending.settle(Err(PublishError::AckTimeout));
                }),
                Step::Close => {
                    slots.close();
                    closed = true;
                }
            }
        }
        drop(slots.close_and_take_all());
        prop_assert!(slots.is_empty());
        prop_assert_eq!(capacity.used(), Limits { messages: 0, bytes: 0 });
        for batch in batches {
            prop_assert_eq!(batch.outcomes().now_or_never().map(|outcomes| outcomes.len()), Some(1));
        }
    }
}
