//! What a call is about, as its caller sees it.

use contract::routes::{Header, Route};

use super::callers::Caller;

/// What kind of thing a route is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tenant,
    User,
    UserInHeader,
    Session,
    Invite,
    Key,
    /// A code that a device waits under, in the body.
    UserCode,
}

impl Kind {
    /// By the route's parameter or header; `None` for a route about nothing that somebody owns.
    pub(super) fn of(route: &Route) -> Option<Self> {
        if route.headers.contains(&Header::User) {
            return Some(Self::UserInHeader);
        }
        if matches!(route.path, "/auth/device/inspect" | "/auth/device/decide") {
            return Some(Self::UserCode);
        }
        match route.path_parameters().next()?.0 {
            "tenant_id" => Some(Self::Tenant),
            "user_id" => Some(Self::User),
            "session_id" => Some(Self::Session),
            "invite_id" => Some(Self::Invite),
            "key_id" => Some(Self::Key),
            "name" | "code" => None,
            other => panic!("{other} is a new kind of object: say whose it is"),
        }
    }
}

/// Whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The route is about nothing that somebody owns.
    Nothing,
    /// The caller's own.
    Own,
    /// Of the caller's tenant, or of the one that the operator names.
    Tenants,
    /// Of another tenant.
    Foreign,
    /// There is none.
    Missing,
}

impl Object {
    /// Every one that there is for this caller.
    pub(super) fn of(kind: Option<Kind>, caller: &Caller) -> Vec<Self> {
        match kind {
            None => vec![Self::Nothing],
            Some(Kind::User | Kind::UserInHeader | Kind::Session) if caller.person.is_some() => {
                vec![Self::Own, Self::Tenants, Self::Foreign, Self::Missing]
            }
            Some(_) => vec![Self::Tenants, Self::Foreign, Self::Missing],
        }
    }
}
