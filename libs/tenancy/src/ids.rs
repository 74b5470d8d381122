//! UUID ids, one type per kind. New ids are version 7 (RFC 9562) and therefore sort by creation time.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
        )]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Returns a new id. Ids are not secrets, so their randomness is not injected.
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(s).map(Self)
            }
        }
    };
}

id!(
    /// Id of a user. A user belongs to one tenant.
    UserId
);
id!(
    /// Id of an invite.
    InviteId
);
id!(
    /// Id of a password reset.
    ResetId
);
id!(
    /// Public id of a session. The credential is the session token, not this id.
    SessionId
);
id!(
    /// Public id of an API key. The credential is the key, not this id.
    KeyId
);
id!(
    /// Id of a device authorization grant (RFC 8628).
    DeviceGrantId
);
id!(
    /// Id of an outbox message.
    OutboxId
);
