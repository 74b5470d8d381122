//! Who may call a route, and the headers that name what a call is about.

use std::fmt;

use crate::Scope;

/// A kind of caller that a route answers. A route lists all that it answers; one of them suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody at all.
    Anybody,
    /// Whoever sends the secret that the request itself carries: a password, an invite's token, a raw session token.
    Proof,
    /// The person whom the call is about, with a session.
    Owner,
    /// Any person of the tenant, with a session.
    Member,
    /// An administrator of the tenant, with a session.
    Admin,
    /// An API key of the tenant with this scope.
    Key(Scope),
    /// Any API key of the tenant.
    AnyKey,
    /// The operator of the installation. Where the route reads `X-Tenant-ID`, it must name the tenant.
    PlatformAdmin,
}

impl Access {
    /// Whether it is shown as `Authorization: Bearer`.
    pub const fn is_bearer(self) -> bool {
        !matches!(self, Self::Anybody | Self::Proof)
    }
}

impl fmt::Display for Access {
    /// In words, with Markdown's marks for code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anybody => f.write_str("anybody"),
            Self::Proof => f.write_str("whoever sends the right password or token"),
            Self::Owner => f.write_str("the person whom it is about, with a session"),
            Self::Member => f.write_str("any person of the tenant, with a session"),
            Self::Admin => f.write_str("an administrator of the tenant, with a session"),
            Self::Key(scope) => write!(f, "an API key with `{scope}`"),
            Self::AnyKey => f.write_str("any API key"),
            Self::PlatformAdmin => f.write_str("the operator"),
        }
    }
}

/// A header that names what a call is about. It never grants anything, except for [`Header::Session`], which is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// `X-Tenant-ID`, needed.
    Tenant,
    /// `X-Tenant-ID`, needed from the operator only; from others it may name their own tenant.
    TenantOfPlatformAdmin,
    /// `X-User-ID`, needed.
    User,
    /// `X-Session-ID`, the raw session token, needed.
    Session,
}
