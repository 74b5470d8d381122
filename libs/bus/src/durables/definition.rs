//! What a durable reads and how. It is stored in the metadata of the durable.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use chrono::{DateTime, Utc};
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
    #[serde(skip_serializing_if = "Start::is_all", default)]
    pub start: Start,
    /// Seconds until an event without an acknowledgement is delivered again; `None` is [`DurableDefinition::ACK_WAIT_SECONDS`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ack_wait_seconds: Option<u32>,
    /// Maximum number of delivered events without an acknowledgement; `None` is [`DurableDefinition::MAX_ACK_PENDING`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_ack_pending: Option<u32>,
}

/// The first event of a durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The oldest stored event.
    #[default]
    All,
    /// The first event after the creation.
    New,
    /// The first event that was stored at this time or later.
    At(DateTime<Utc>),
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

impl Start {
    /// Takes a reference because serde calls it with one.
    fn is_all(&self) -> bool {
        *self == Self::All
    }

    pub(super) async fn policy(
        self,
        context: &Context,
        stream: &str,
    ) -> Result<DeliverPolicy, async_nats::Error> {
        Ok(match self {
            Self::All => DeliverPolicy::All,
            // A number: nats-server would start `new` again at the end of the stream if a crash lost the state of the durable.
            Self::New => {
                DeliverPolicy::ByStartSequence { start_sequence: next_sequence(context, stream).await? }
            }
            Self::At(time) => policy_since(context, stream, time).await?,
        })
    }
}
