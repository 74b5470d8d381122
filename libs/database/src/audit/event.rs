//! The audit event.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use contract::audit::EventName;
use contract::session::AuthMethod;
use hashing::TokenDigest;
use serde::Serialize;
use tenancy::{Actor, InviteId, KeyId, SessionId, UserId};

/// An audit event. Fields that are unknown, or that the PII policy excludes, are omitted.
#[derive(Clone, Debug, Serialize)]
pub struct AuditEvent {
    /// The name.
    pub event: EventName,
    /// The time; by default that of the transaction.
    #[serde(skip)]
    pub occurred_at: Option<DateTime<Utc>>,
    /// Whether the change is accepted while too many events of the tenant wait: it ends something, and a repetition needs a change that
    /// is rejected. Always so for the platform administrator and for the service itself.
    #[serde(skip)]
    pub is_always_recorded: bool,
    /// The actor; by default the actor of the transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// The affected object or state, if the name leaves it open: `invite`, `session`, `api_key`, `device_grant`, `disabled`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<&'static str>,
    /// The affected user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// The affected session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The affected invite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invite_id: Option<InviteId>,
    /// The affected API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    /// The affected consumer of the event stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// The id of the request, if another service records its change here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The first 8 hex digits of the credential's digest. They identify the credential and cannot be used as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// How the user of a created session authenticated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amr: Vec<AuthMethod>,
    /// The address of the client; by default that of the current request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// The e-mail address from the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

impl AuditEvent {
    /// An event of the transaction's actor, without details.
    pub const fn new(event: EventName) -> Self {
        Self {
            event,
            occurred_at: None,
            is_always_recorded: false,
            actor: None,
            about: None,
            user_id: None,
            session_id: None,
            invite_id: None,
            key_id: None,
            consumer: None,
            request_id: None,
            credential: None,
            amr: Vec::new(),
            ip: None,
            email: None,
        }
    }

    /// The same event with another actor than the transaction's.
    #[must_use]
    pub fn by(self, actor: Actor) -> Self {
        Self { actor: Some(actor), ..self }
    }

    /// The same event with the affected object or state.
    #[must_use]
    pub fn about(self, about: &'static str) -> Self {
        Self { about: Some(about), ..self }
    }

    /// The same event with the affected user.
    #[must_use]
    pub fn user(self, user_id: UserId) -> Self {
        Self { user_id: Some(user_id), ..self }
    }

    /// The same event with the affected invite.
    #[must_use]
    pub fn invite(self, invite_id: InviteId) -> Self {
        Self { invite_id: Some(invite_id), ..self }
    }

    /// The same event with the affected API key.
    #[must_use]
    pub fn key(self, key_id: KeyId) -> Self {
        Self { key_id: Some(key_id), ..self }
    }

    /// The same event of a change that ends something: see [`Self::is_always_recorded`].
    #[must_use]
    pub fn always_recorded(self) -> Self {
        Self { is_always_recorded: true, ..self }
    }

    /// The same event with the credential that has this digest.
    #[must_use]
    pub fn credential(self, digest: &TokenDigest) -> Self {
        Self { credential: Some(digest.prefix()), ..self }
    }
}
