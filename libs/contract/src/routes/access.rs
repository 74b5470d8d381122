//! Who may call a route, which headers it reads, and which rate limit counts it.

use std::fmt;

use crate::Scope;

/// A kind of caller that a route accepts. A route lists all of them; one is sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone; no credential is read.
    Public,
    /// A caller that sends the required secret in the request itself: a password, a single-use token or a session token.
    RequestSecret,
    /// The user that the request is about, with a session.
    Owner,
    /// Any user of the tenant, with a session.
    Member,
    /// An administrator of the tenant, with a session.
    Admin,
    /// An administrator of the tenant with a recent login, see [`Self::RecentMember`].
    RecentAdmin,
    /// Any user of the tenant, with a session that was created with the password at most ten minutes ago, and with the second factor
    /// if the user has one.
    RecentMember,
    /// An API key of the tenant with this scope.
    Key(Scope),
    /// Any API key of the tenant.
    AnyKey,
    /// The platform administrator. If the route reads `X-Tenant-ID`, the header is required and names the tenant.
    PlatformAdmin,
}

impl Access {
    /// Returns whether the caller sends `Authorization: Bearer`.
    pub const fn is_bearer(self) -> bool {
        !matches!(self, Self::Public | Self::RequestSecret)
    }
}

impl fmt::Display for Access {
    /// Writes the kind of caller as Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("everyone"),
            Self::RequestSecret => f.write_str("anyone with the password or token in the request"),
            Self::Owner => f.write_str("the user concerned, with a session"),
            Self::Member => f.write_str("any user of the tenant, with a session"),
            Self::Admin => f.write_str("an administrator of the tenant, with a session"),
            Self::RecentAdmin => f.write_str(
                "an administrator of the tenant, with a session from a login with the password or a passkey in the last ten minutes",
            ),
            Self::RecentMember => f.write_str(
                "any user of the tenant, with a session from a login with the password or a passkey in the last ten minutes",
            ),
            Self::Key(scope) => write!(f, "an API key with the scope `{scope}`"),
            Self::AnyKey => f.write_str("any API key"),
            Self::PlatformAdmin => f.write_str("the platform administrator"),
        }
    }
}

/// A request header that names the object of a request. It grants nothing, except for [`Header::Session`], which carries
/// a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// `X-Tenant-ID`, required.
    Tenant,
    /// `X-Tenant-ID`, unless the body names the tenant.
    TenantOrField,
    /// `X-Tenant-ID`, required from the platform administrator only. Other callers may send their own tenant.
    TenantOfPlatformAdmin,
    /// `X-Tenant-ID`, optional: the credential in the body determines the tenant, which must be this one.
    OptionalTenant,
    /// `X-User-ID`, required.
    User,
    /// `X-Session-ID`, required: the raw session token.
    Session,
}

/// The rate limit that counts the requests of a route per client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimit {
    /// No limit per address: files of pages, which cost no lookup, routes of ingest, which have memory budgets instead, and polls of
    /// devices, which must not suffer from other clients of their address. The lookups of an address run one after the other.
    Unlimited,
    /// Requests without a valid credential are counted in memory. Others have no limit per address.
    Credential,
    /// Counted on arrival, in the memory of each replica.
    Default,
    /// Password checks: counted after the body arrived, before the password is hashed. A change of a password is counted on arrival,
    /// because its credential is looked up before the body is read. If the counter is unavailable, the request fails with 503.
    /// `Reset`, `Token` and `Device` also count after the body arrived, and fail in the same way.
    Login,
    /// Requests for a password reset, counted per account and client address.
    Reset,
    /// Presenting a single-use token. Only unknown tokens count against the limit of the address.
    Token,
    /// Requests for a device code.
    Device,
}

impl RateLimit {
    /// Returns the name of the limit in metrics and in the `limits` table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Credential => "credential",
            Self::Default => "default",
            Self::Login => "login",
            Self::Reset => "reset",
            Self::Token => "token",
            Self::Device => "device",
        }
    }
}
