//! Every message gets one outcome and releases its memory, in any order of events.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use proptest::prelude::*;
use service::telemetry::Metrics;
use tenancy::TenantId;

use super::super::PublishError;
use super::super::metrics::durations;
use super::super::pending_message::{CallOutcomes, PendingMessage};
use super::super::target::Target;
use super::*;
use crate::budget::MemoryBudget;
use crate::message::Message;
use crate::subject::AuditSubject;

fn budget() -> MemoryBudget {
    MemoryBudget::with_max_reservations(400, 1 << 20)
}

/// Returns a message and its batch.
fn pending(budget: &MemoryBudget, deadline: Instant) -> (PendingMessage, Arc<CallOutcomes>) {
    let tenant: TenantId = "acme".parse().unwrap();
    let subject = AuditSubject::new(Some(&tenant), "identity", "user_invited").unwrap();
    let message = Message::audit(&subject, "1", None, Bytes::new()).unwrap();
    let reservation = budget.reserve(&tenant, message.size()).unwrap();
    let metrics = Metrics::new("test");
    let batch = CallOutcomes::new(1, &durations(&metrics, "UDM"));
    let target = Arc::new(Target::new(0, "UDM", &metrics));
    (PendingMessage::new(message, target, reservation, deadline, &batch, 0), batch)
}

#[test]
fn late_reply_does_not_match_the_next_message() {
    let (budget, table) = (budget(), ReplyTable::default());
    let (first, _) = pending(&budget, Instant::now());
    let (second, _) = pending(&budget, Instant::now());
    let old = table.insert(PendingReply::Single(first)).unwrap();
    drop(table.remove(old));
    let new = table.insert(PendingReply::Single(second)).unwrap();
    assert!(table.remove(old).is_none());
    assert!(table.remove(new).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Insert { expired: bool, messages: usize },
    Reply(prop::sample::Index),
    RemoveExpired,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 1..4_usize).prop_map(|(expired, messages)| Step::Insert { expired, messages }),
        4 => any::<prop::sample::Index>().prop_map(Step::Reply),
        1 => Just(Step::RemoveExpired),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #[test]
    fn reply_tokens_round_trip(number: u64, stream: usize) {
        let token = ReplyToken { number, stream };
        prop_assert_eq!(token.to_string().parse::<ReplyToken>(), Ok(token));
    }

    #[test]
    fn every_message_gets_an_outcome(steps in prop::collection::vec(step(), 0..80)) {
        let (budget, table) = (budget(), ReplyTable::default());
        let (now, later) = (Instant::now(), Instant::now() + std::time::Duration::from_hours(1));
        let (mut tokens, mut batches, mut closed) = (Vec::new(), Vec::new(), false);
        for step in steps {
            match step {
                Step::Insert { expired, messages } => {
                    let deadline = if expired { now } else { later };
                    let (mut messages, of_messages): (Vec<_>, Vec<_>) =
                        (0..messages).map(|_| pending(&budget, deadline)).unzip();
                    let single = if messages.len() == 1 { messages.pop() } else { None };
                    let token = table.insert(single.map_or(PendingReply::AtomicBatch(messages), PendingReply::Single));
                    prop_assert_eq!(token.is_none(), closed);
                    tokens.extend(token);
                    batches.extend(of_messages);
                }
                Step::Reply(which) if !tokens.is_empty() => {
                    if let Some(exchange) = table.remove(*which.get(&tokens)) {
                        exchange.fail(&PublishError::StreamFull);
                    }
                }
                Step::Reply(_) => {}
                Step::RemoveExpired => table.remove_expired(now).into_iter().for_each(|exchange| {
                    assert_eq!(exchange.deadline(), Some(now));
                    exchange.fail(&PublishError::AckTimeout);
                }),
                Step::Close => {
                    table.close();
                    closed = true;
                }
            }
        }
        drop(table.close_and_remove_all());
        prop_assert!(table.is_empty());
        prop_assert_eq!((budget.reservations(), budget.reserved_bytes()), (0, 0));
        for batch in batches {
            prop_assert_eq!(batch.outcomes().now_or_never().map(|outcomes| outcomes.len()), Some(1));
        }
    }
}
