//! Typed ids, the actor of a change, and the names of the request headers that carry ids.
//!
//! An id of one kind cannot be used where another kind is expected. New ids are UUIDs of version 7 (RFC 9562) and therefore
//! sort by creation time. [`PerTenant`] keeps state of tenants in memory. The crate has no server dependencies; the feature
//! `sqlx` adds the database encoding of the ids.

mod per_tenant;

use std::str::FromStr;

use http::HeaderName;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use per_tenant::PerTenant;

/// Names the tenant that a request acts on.
pub const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
/// Names the user that a request acts on.
pub const X_USER_ID: HeaderName = HeaderName::from_static("x-user-id");
/// Carries the raw session token to revoke.
pub const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// Who causes a change, as audit events name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// The text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057")]
pub struct InvalidId;

/// Implements serialization and deserialization of a type as its text: `Display` and `FromStr`.
#[macro_export]
macro_rules! serde_as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

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
            type Err = InvalidId;

            fn from_str(s: &str) -> Result<Self, Self::Err> {
                // One spelling per id: `Uuid` itself also parses braces, URNs and text without hyphens.
                let id = s.parse::<uuid::fmt::Hyphenated>().map_err(|_| InvalidId)?;
                Ok(Self(id.into_uuid()))
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
    /// Id of a second factor.
    FactorId
);
id!(
    /// Id of an outbox message.
    OutboxId
);

/// Id of a tenant: a DNS label (RFC 1123) of 1 to 63 characters of `a-z`, `0-9` and `-`, without a leading or trailing hyphen. Chosen at
/// creation, immutable, and used unchanged in headers, CLI options, NATS subjects and Kubernetes resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, schemars::JsonSchema)]
#[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
#[schemars(transparent)]
pub struct TenantId(#[schemars(pattern("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))] String);

/// The text is not a valid tenant id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tenant id has 1 to 63 characters of a-z, 0-9 and '-', without a leading or trailing hyphen")]
pub struct InvalidTenantId;

impl TenantId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantId {
    type Err = InvalidTenantId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let label = text.as_bytes();
        let is_valid = (1..=63).contains(&label.len())
            && label.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && label.first() != Some(&b'-')
            && label.last() != Some(&b'-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidTenantId) }
    }
}

serde_as_text!(TenantId);

impl std::fmt::Display for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_dns_labels_only() {
        for good in ["a", "acme", "0", "a-b", &"x".repeat(63)] {
            assert!(good.parse::<TenantId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", "a b", &"x".repeat(64)] {
            assert_eq!(bad.parse::<TenantId>(), Err(InvalidTenantId), "{bad}");
        }
    }

    #[test]
    fn an_id_is_a_uuid_with_hyphens() {
        let id = UserId::generate();
        assert_eq!(id.to_string().parse::<UserId>(), Ok(id));
        for other in
            [id.0.simple().to_string(), id.0.braced().to_string(), id.0.urn().to_string(), String::new()]
        {
            assert!(other.parse::<UserId>().is_err(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn text_and_json_round_trip(s in "[a-z0-9-]{0,70}") {
            if let Ok(id) = s.parse::<TenantId>() {
                prop_assert_eq!(id.to_string(), s.clone());
                prop_assert_eq!(serde_json::from_value::<TenantId>(serde_json::json!(s)).unwrap(), id);
            } else {
                prop_assert!(serde_json::from_value::<TenantId>(serde_json::json!(s)).is_err());
            }
        }
    }
}
