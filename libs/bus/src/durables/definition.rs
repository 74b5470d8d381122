//! What a durable reads and how. It is stored in the metadata of the durable.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use contract::consumers::ConsumerStart;
use serde::{Deserialize, Serialize};

use crate::stored::{next_sequence, policy_since};

use super::DurableFilter;

/// The definition of a durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableDefinition {
    /// The events that it reads.
    #[serde(flatten)]
    pub filter: DurableFilter,
    /// The first event that it reads.
    #[serde(skip_serializing_if = "is_all", default)]
    pub start: ConsumerStart,
    /// Seconds until an event without an acknowledgement is delivered again; `None` is [`DurableDefinition::ACK_WAIT_SECONDS`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ack_wait_seconds: Option<u32>,
    /// Maximum number of delivered events without an acknowledgement; `None` is [`DurableDefinition::MAX_ACK_PENDING`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_ack_pending: Option<u32>,
}

impl DurableDefinition {
    /// Default of `ack_wait_seconds`.
    pub const ACK_WAIT_SECONDS: u32 = 30;
    /// Default of `max_ack_pending`.
    pub const MAX_ACK_PENDING: u32 = 1000;

    pub(super) fn ack_wait(&self) -> Duration {
        Duration::from_secs(self.ack_wait_seconds.unwrap_or(Self::ACK_WAIT_SECONDS).into())
    }
}

impl From<DurableFilter> for DurableDefinition {
    fn from(filter: DurableFilter) -> Self {
        Self { filter, ..Self::default() }
    }
}

/// Takes a reference because serde calls it with one.
fn is_all(start: &ConsumerStart) -> bool {
    *start == ConsumerStart::All
}

/// Returns the policy of a new durable of a stream.
pub(super) async fn policy(
    start: ConsumerStart,
    context: &Context,
    stream: &str,
) -> Result<DeliverPolicy, async_nats::Error> {
    Ok(match start {
        ConsumerStart::All => DeliverPolicy::All,
        // A number: nats-server would start `new` again at the end of the stream if a crash lost the state of the durable.
        ConsumerStart::New => {
            DeliverPolicy::ByStartSequence { start_sequence: next_sequence(context, stream).await? }
        }
        ConsumerStart::At(time) => policy_since(context, stream, time).await?,
    })
}

#[cfg(test)]
mod tests {
    use contract::consumers::Partitions;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stored_definition_has_the_form_of_the_api() {
        let partitions = Some(Partitions { first: 0, last: 31 });
        let filter = DurableFilter { partitions, ..DurableFilter::default() };
        for (start, stored) in [
            (ConsumerStart::All, json!({ "partitions": { "first": 0, "last": 31 } })),
            (ConsumerStart::New, json!({ "partitions": { "first": 0, "last": 31 }, "start": "new" })),
            (
                ConsumerStart::At(chrono::DateTime::UNIX_EPOCH),
                json!({ "partitions": { "first": 0, "last": 31 }, "start": "1970-01-01T00:00:00Z" }),
            ),
        ] {
            let definition = DurableDefinition { start, ..filter.clone().into() };
            assert_eq!(json!(definition), stored);
            assert_eq!(serde_json::from_value::<DurableDefinition>(stored).unwrap(), definition);
        }
    }
}
