//! The object of a request and its relation to the caller.

use contract::routes::{Header, Route};

use super::callers::Caller;

/// Kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tenant,
    /// A suspended tenant that the request deletes.
    DeletedTenant,
    User,
    /// A user that the request deletes.
    DeletedUser,
    UserInHeader,
    Session,
    Invite,
    /// An authenticator app, which only its owner sees.
    Factor,
    Key,
    Consumer,
    /// Number of a quarantined item.
    Quarantined,
    /// User code of a device, in the body.
    UserCode,
}

impl Kind {
    /// Returns the kind of object by path parameter or header. `None` if the object has no owner.
    pub(super) fn of(route: &Route) -> Option<Self> {
        if route.headers.contains(&Header::User) {
            return Some(Self::UserInHeader);
        }
        if matches!(route.path, "/auth/device/inspect" | "/auth/device/decide") {
            return Some(Self::UserCode);
        }
        match route.operation_id().as_str() {
            "delete_user" => return Some(Self::DeletedUser),
            "delete_tenant" => return Some(Self::DeletedTenant),
            _ => {}
        }
        match route.path_parameters().next()? {
            "tenant_id" => Some(Self::Tenant),
            "user_id" => Some(Self::User),
            "session_id" => Some(Self::Session),
            "invite_id" => Some(Self::Invite),
            "factor_id" => Some(Self::Factor),
            "key_id" => Some(Self::Key),
            "consumer_name" => Some(Self::Consumer),
            "sequence" => Some(Self::Quarantined),
            "name" | "code" | "version" => None,
            other => panic!("add the path parameter {other} to the kinds of objects"),
        }
    }
}

/// Relation of an object to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The object has no owner.
    Nothing,
    /// Owned by the caller.
    Own,
    /// In the tenant of the caller, or in the one that the platform administrator names.
    Tenants,
    /// In another tenant.
    Foreign,
    /// Unknown.
    Missing,
    /// An id in the path that no object can have.
    Malformed,
}

impl Object {
    /// Returns the relations that are possible for the caller.
    pub(super) fn of(kind: Option<Kind>, caller: &Caller) -> Vec<Self> {
        match kind {
            None => vec![Self::Nothing],
            Some(Kind::Factor) if caller.user.is_some() => {
                vec![Self::Own, Self::Foreign, Self::Missing, Self::Malformed]
            }
            Some(Kind::Factor) => vec![Self::Foreign, Self::Missing, Self::Malformed],
            Some(Kind::UserInHeader) if caller.user.is_some() => {
                vec![Self::Own, Self::Tenants, Self::Foreign, Self::Missing]
            }
            Some(Kind::UserInHeader | Kind::UserCode) => vec![Self::Tenants, Self::Foreign, Self::Missing],
            Some(Kind::User | Kind::Session) if caller.user.is_some() => {
                vec![Self::Own, Self::Tenants, Self::Foreign, Self::Missing, Self::Malformed]
            }
            Some(_) => vec![Self::Tenants, Self::Foreign, Self::Missing, Self::Malformed],
        }
    }
}
