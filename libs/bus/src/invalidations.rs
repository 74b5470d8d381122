//! Hints that credentials have ended or changed, so that nobody goes on believing what they remember of them.
//!
//! A hint may be lost: the broker promises nothing for such messages, and publishing one never holds up the change itself.
//! So every message has a number, one is sent each second even when there is nothing to say, and whoever listens notices
//! what is missing.

mod listener;
mod publisher;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, UserId};
use uuid::Uuid;

pub use listener::{FeedEvent, InvalidationListener};
pub use publisher::InvalidationPublisher;

/// Where invalidations are published.
pub const INVALIDATION_SUBJECT: &str = "svc.invalidations.v1";

/// AccountRef a hint is about. It says nothing of what is true now: that must be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalidation {
    /// One session or API key, by the SHA-256 digest of its token in lower-case hex.
    Credential(String),
    /// A user: their role, status or password changed, or all their sessions ended.
    User(UserId),
    /// A tenant: its status, quota or producers changed.
    Tenant(TenantId),
}

/// A message on [`INVALIDATION_SUBJECT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidationMessage {
    /// The process that publishes.
    pub publisher: Uuid,
    /// From 1, each message's one more than that of the publisher's message before.
    pub number: u64,
    /// When the oldest of the changes was committed.
    pub since: DateTime<Utc>,
    /// What changed; nothing in a heartbeat.
    #[serde(default)]
    pub revoked: Vec<Invalidation>,
    /// The publisher ends in order: nothing more comes from it, and nothing is missing.
    #[serde(default)]
    pub last: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_keep_their_form_in_both_directions() {
        let text = concat!(
            r#"{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","number":7,"since":"2026-01-31T12:00:00.250Z","#,
            r#""revoked":[{"credential":"ab"},{"user":"018f2e6e-7c1d-7000-8000-000000000002"},{"tenant":"acme"}],"last":false}"#
        );
        let hint: InvalidationMessage = serde_json::from_str(text).unwrap();
        assert_eq!(hint.revoked.len(), 3);
        assert_eq!(serde_json::to_string(&hint).unwrap(), text);
        let heartbeat = r#"{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","number":8,"since":"2026-01-31T12:00:01Z","later":1}"#;
        assert_eq!(serde_json::from_str::<InvalidationMessage>(heartbeat).unwrap().revoked, []);
    }
}
