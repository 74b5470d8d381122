//! What the table of routes says of a caller: the rules of who may do what, in one place.

use contract::ProblemKind;
use contract::routes::{Access, Header, Route};
use testkit::TestResponse;

use super::callers::{Caller, Standing};
use super::cases::Case;
use super::objects::Object;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// What the route answers when all is well.
    Success,
    /// Another answer of the route, which is no problem document.
    Status(u16),
    Problem(ProblemKind),
}

impl Expected {
    pub(super) fn is(self, answer: &TestResponse, route: &Route) -> bool {
        match self {
            Self::Success => answer.status == route.responses[0].status,
            Self::Status(status) => answer.status == status,
            Self::Problem(kind) => {
                answer.status == kind.status()
                    && answer.headers["content-type"] == contract::problem::MEDIA_TYPE
                    && answer.json()["code"] == kind.code()
            }
        }
    }
}

/// What this caller gets from this route on this object.
pub(super) fn expected(route: &Route, case: &Case, caller: &Caller, object: Object) -> Expected {
    use ProblemKind as P;
    let lists = |access| route.access.contains(&access);
    let standing = caller.standing;
    if lists(Access::Public) || route.access == [Access::RequestSecret] {
        // Whatever bearer comes along is not looked at.
        return case.let_in;
    }
    if lists(Access::RequestSecret) {
        return match standing {
            Standing::Nobody => case.let_in,
            Standing::PlatformAdmin | Standing::Dead => Expected::Problem(P::CredentialInvalid),
            _ if object == Object::Own => case.let_in,
            _ => Expected::Problem(P::NotFound),
        };
    }
    if let Some(refusal) = refused_credential(route, standing) {
        return Expected::Problem(refusal);
    }
    let by_role = match standing {
        Standing::Nobody | Standing::Dead => false,
        Standing::Member => lists(Access::Member),
        Standing::Admin => lists(Access::Admin) || lists(Access::Member),
        Standing::Key(scope) => lists(Access::Key(scope)) || lists(Access::AnyKey),
        Standing::PlatformAdmin => lists(Access::PlatformAdmin),
    };
    let as_owner = lists(Access::Owner) && object == Object::Own;
    if !by_role && !as_owner {
        return Expected::Problem(refused_role(route, standing));
    }
    match object {
        Object::Missing => Expected::Problem(P::NotFound),
        Object::Foreign if !sees_every_tenant(route, standing) => Expected::Problem(P::NotFound),
        _ => case.let_in,
    }
}

/// A credential that is none here, before anybody asks what it may do.
fn refused_credential(route: &Route, standing: Standing) -> Option<ProblemKind> {
    match standing {
        Standing::Nobody => Some(ProblemKind::Unauthenticated),
        Standing::PlatformAdmin if !route.access.contains(&Access::PlatformAdmin) => {
            Some(ProblemKind::CredentialInvalid)
        }
        // No session and no key opens it, so none is looked up.
        Standing::Dead if route.access == [Access::PlatformAdmin] => Some(ProblemKind::Forbidden),
        Standing::Dead => Some(ProblemKind::CredentialInvalid),
        _ => None,
    }
}

/// A caller who is somebody, but not one of these. What only some of a tenant see is like missing to the others.
fn refused_role(route: &Route, standing: Standing) -> ProblemKind {
    let takes_keys = route.access.iter().any(|access| matches!(access, Access::Key(_)));
    let of_some = route.access.contains(&Access::Owner)
        || route.access.contains(&Access::Member) && route.path_parameters().next().is_some();
    match standing {
        Standing::Key(_) if takes_keys => ProblemKind::InsufficientScope,
        _ if of_some => ProblemKind::NotFound,
        _ => ProblemKind::Forbidden,
    }
}

/// The operator, where the route asks for no tenant to act in.
fn sees_every_tenant(route: &Route, standing: Standing) -> bool {
    standing == Standing::PlatformAdmin && !route.headers.contains(&Header::TenantOfPlatformAdmin)
}
