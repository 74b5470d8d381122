//! What an audit event says.

use std::net::IpAddr;

use authn::Caller;
use contract::internal::Credential;
use hashing::TokenDigest;
use serde::Serialize;
use tenancy::{InviteId, KeyId, SessionId, UserId};

/// What happened, in the words of OWASP's Logging Vocabulary; also the last token of the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// Somebody proved who they are.
    AuthnLoginSuccess,
    /// Somebody did not; nothing tells why.
    AuthnLoginFail,
    /// After too many failures nothing but a reset or an administrator lets them in.
    AuthnLoginLock,
    /// A password was changed or reset.
    AuthnPasswordChange,
    /// A change of a password was refused.
    AuthnPasswordChangeFail,
    /// An invite, a reset or an API key was made, or a device was let in.
    AuthnTokenCreated,
    /// An invite, an API key or a session was ended by somebody, or a device was not let in.
    AuthnTokenRevoked,
    /// A session was made.
    SessionCreated,
    /// A session reached its end by itself; the migrations of session write this one.
    SessionExpired,
    /// An invited person set a password.
    UserCreated,
    /// A user was disabled or enabled.
    UserUpdated,
    /// A user's role was changed.
    PrivilegePermissionsChanged,
    /// The operator made, suspended, resumed or changed a tenant.
    AuthzAdmin,
}

/// Who did it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Actor {
    /// Somebody who had proven nothing.
    #[default]
    Anonymous,
    /// A person.
    User {
        /// Whose session, password or token it was.
        user_id: UserId,
    },
    /// An API key.
    ApiKey {
        /// Which.
        key_id: KeyId,
    },
    /// The operator.
    PlatformAdmin,
    /// The service itself.
    System,
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        match caller.subject().credential {
            Credential::Session { user_id, .. } => Self::User { user_id },
            Credential::ApiKey { key_id, .. } => Self::ApiKey { key_id },
        }
    }
}

/// One audit event. What is unknown, or not to be kept, is left out.
#[derive(Clone, Debug, Serialize)]
pub struct AuditEvent {
    /// What happened.
    pub event: EventName,
    /// Who did it.
    pub actor: Actor,
    /// What it was about, where the name leaves that open: `invite`, `reset`, `session`, `api_key`, `device_grant`, `suspended`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<&'static str>,
    /// The user whom it befell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The invite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invite_id: Option<InviteId>,
    /// The API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    /// The first 8 hex digits of the credential's digest: tells credentials apart and is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The client's address, if the policy keeps addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// The e-mail address that was given, if the policy keeps those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

impl AuditEvent {
    /// An event with nothing but a name and an actor.
    pub const fn new(event: EventName, actor: Actor) -> Self {
        Self {
            event,
            actor,
            about: None,
            user_id: None,
            session_id: None,
            invite_id: None,
            key_id: None,
            credential: None,
            ip: None,
            email: None,
        }
    }

    /// Names a credential without telling it.
    #[must_use]
    pub fn credential(self, digest: &TokenDigest) -> Self {
        Self { credential: Some(digest.prefix()), ..self }
    }
}
