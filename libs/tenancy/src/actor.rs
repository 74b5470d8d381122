//! The actor of a change, as audit events name it.

use serde::Serialize;

use crate::{KeyId, UserId};

/// Who causes a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Actor {
    /// An unauthenticated client.
    #[default]
    Anonymous,
    /// A user.
    User {
        /// The owner of the session, password or token.
        user_id: UserId,
    },
    /// An API key.
    ApiKey {
        /// The key.
        key_id: KeyId,
    },
    /// The platform administrator.
    PlatformAdmin,
    /// The service itself.
    System,
}
