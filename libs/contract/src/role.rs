//! Roles, scopes, statuses and login methods.

use serde::{Deserialize, Serialize};

macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(type_name = "text"))]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] #[cfg_attr(feature = "sqlx", sqlx(rename = $text))] $variant),+ }

        impl $name {
            /// All values in order of definition.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the value as sent on the wire and stored in the database.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownValue;

            fn from_str(s: &str) -> Result<Self, UnknownValue> {
                match s { $($text => Ok(Self::$variant),)+ _ => Err(UnknownValue(Self::ALL.iter().map(|v| v.as_str()).collect())) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use vocabulary;

/// The text is not one of the values, which the message lists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of: {}", .0.join(", "))]
pub struct UnknownValue(pub(crate) Vec<&'static str>);

vocabulary!(
    /// Role of a user in a tenant.
    #[derive(Default)]
    Role {
        /// Manages the own profile, sessions and password, and sends events.
        #[default]
        Member = "member",
        /// Manages users, invites, sessions and API keys of the tenant, and sends and reads events.
        Admin = "admin",
    }
);
vocabulary!(
    /// Permission of a credential.
    Scope {
        /// Send events.
        EventsWrite = "events:write",
        /// Read events of the tenant.
        EventsRead = "events:read",
        /// Read users and invites.
        UsersRead = "users:read",
        /// Invite members, resend and revoke invites.
        UsersWrite = "users:write",
    }
);
impl Role {
    /// Returns the scopes of a session of a user with this role.
    pub const fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Member => &[Scope::EventsWrite],
            Self::Admin => Scope::ALL,
        }
    }
}

vocabulary!(
    /// Account status of a user.
    UserStatus {
        /// Invited; has no password yet.
        Invited = "invited",
        /// Can log in.
        Active = "active",
        /// Cannot log in. All sessions are revoked.
        Disabled = "disabled",
    }
);
vocabulary!(
    /// Status of a tenant.
    TenantStatus {
        /// Users can log in, API keys are accepted.
        Active = "active",
        /// All sessions are revoked, and API keys are rejected until the tenant is resumed.
        Suspended = "suspended",
    }
);
vocabulary!(
    /// Status of an invite.
    InviteStatus {
        /// The token is valid.
        Pending = "pending",
        /// The user has set a password.
        Accepted = "accepted",
        /// The token has expired.
        Expired = "expired",
        /// The invite was revoked.
        Revoked = "revoked",
    }
);
vocabulary!(
    /// Status of a mail.
    MailStatus {
        /// Not accepted by the mail server yet. It is tried again, for a suspended tenant after it is resumed.
        Waiting = "waiting",
        /// Accepted by the mail server.
        Sent = "sent",
        /// Not accepted, and not tried again.
        Failed = "failed",
    }
);
vocabulary!(
    /// Kind of a mail.
    MailKind {
        /// The link of an invite.
        Invite = "invite",
        /// The link of a password reset.
        Reset = "reset",
        /// The password of the recipient was changed.
        PasswordNotice = "password_notice",
        /// An administrator was invited, or a role was changed.
        AdminNotice = "admin_notice",
        /// An API key was created.
        ApiKeyNotice = "api_key_notice",
        /// The second factor of the recipient was changed, used or locked.
        FactorNotice = "factor_notice",
    }
);
vocabulary!(
    /// How a person authenticated (RFC 8176).
    AuthMethod {
        /// With a password.
        Pwd = "pwd",
        /// With a one-time code.
        Otp = "otp",
        /// With a passkey that stays on its device.
        Hwk = "hwk",
        /// With a passkey that can be copied to other devices, for example by a password manager.
        Swk = "swk",
        /// With more than one factor. A recovery code is also a second factor, but no `otp`.
        Mfa = "mfa",
    }
);
vocabulary!(
    /// A second factor that a login accepts.
    FactorMethod {
        /// The code of an authenticator app (RFC 6238).
        Totp = "totp",
        /// A passkey (WebAuthn Level 3).
        Passkey = "passkey",
        /// A recovery code.
        RecoveryCode = "recovery_code",
    }
);
vocabulary!(
    /// Which users of a tenant must have a second factor.
    #[derive(Default)]
    SecondFactorPolicy {
        /// None. Each user decides.
        #[default]
        Optional = "optional",
        /// The administrators.
        Administrators = "administrators",
        /// All users.
        Everyone = "everyone",
    }
);
impl SecondFactorPolicy {
    /// Returns whether a user with this role must have a second factor.
    pub const fn requires(self, role: Role) -> bool {
        match self {
            Self::Optional => false,
            Self::Administrators => matches!(role, Role::Admin),
            Self::Everyone => true,
        }
    }
}

vocabulary!(
    /// Login method of a session.
    SessionMethod {
        /// E-mail address and password.
        Password = "password",
        /// Device code (RFC 8628).
        Device = "device",
        /// The page of own sessions, with e-mail address and password. The session is valid on that page only.
        Page = "page",
    }
);
