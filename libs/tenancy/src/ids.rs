//! UUID ids, one type a kind. New ones are version 7 (RFC 9562), so that they sort by time of creation.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema, sqlx::Type,
        )]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Makes a fresh id. Ids are names, not secrets: their randomness needs no injection.
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
    /// A user of one tenant.
    UserId
);
id!(
    /// An invitation of one person into one tenant.
    InviteId
);
id!(
    /// The listed id of a session. It is no credential; the session token is.
    SessionId
);
id!(
    /// The listed id of an API key. It is no credential; the key itself is.
    KeyId
);
