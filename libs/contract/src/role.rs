//! Small closed vocabularies that several contexts share.

use serde::{Deserialize, Serialize};

macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in order of definition.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The value as it stands on the wire and in the database.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;

            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                match s { $($text => Ok(Self::$variant),)+ _ => Err(UnknownWord(Self::ALL.iter().map(|v| v.as_str()).collect())) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = UnknownWord;

            fn try_from(s: String) -> Result<Self, UnknownWord> {
                s.parse()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// A word that is not in the vocabulary; it says which ones are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord(Vec<&'static str>);

impl std::fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected one of: {}", self.0.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

vocabulary!(
    /// What a user may do in a tenant.
    Role {
        /// Own profile, sessions and password; sends events.
        Member = "member",
        /// All of the tenant: users, invites, sessions, API keys; sends and reads events.
        Admin = "admin",
    }
);
vocabulary!(
    /// What a credential may be used for, beyond what its role allows.
    Scope {
        /// Send events.
        EventsWrite = "events:write",
        /// Read the tenant's events.
        EventsRead = "events:read",
        /// Read users and invites.
        UsersRead = "users:read",
        /// Invite members, resend and revoke invites.
        UsersWrite = "users:write",
    }
);
impl Role {
    /// What a session of somebody in this role may be used for, beyond managing their own person.
    pub const fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Member => &[Scope::EventsWrite],
            Self::Admin => Scope::ALL,
        }
    }
}

vocabulary!(
    /// The standing of a user.
    UserStatus {
        /// Invited, without a password yet.
        Invited = "invited",
        /// May log in.
        Active = "active",
        /// May not log in; every session is dead.
        Disabled = "disabled",
    }
);
vocabulary!(
    /// The standing of a tenant.
    TenantStatus {
        /// In use.
        Active = "active",
        /// Every session is dead and every key refused until it is resumed.
        Suspended = "suspended",
    }
);
vocabulary!(
    /// The state of an invite.
    InviteStatus {
        /// Its token can be used.
        Pending = "pending",
        /// The person has set a password.
        Accepted = "accepted",
        /// Its time is over.
        Expired = "expired",
        /// It was taken back.
        Revoked = "revoked",
    }
);
