//! The authorization rules: the response that follows from the route table for a caller and an object.

use contract::ProblemKind;
use contract::routes::{Access, Header, Route};
use testkit::TestResponse;

use super::callers::{Caller, CallerKind};
use super::cases::Case;
use super::objects::Object;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The first response of the route.
    Success,
    /// Another response that is not a problem document.
    Status(u16),
    Problem(ProblemKind),
}

impl Expected {
    pub(super) fn is(self, answer: &TestResponse, route: &Route) -> bool {
        match self {
            Self::Success => answer.status == route.operation().responses[0].status,
            Self::Status(status) => answer.status == status,
            Self::Problem(kind) => {
                answer.status == kind.status()
                    && answer.headers["content-type"] == contract::problem::MEDIA_TYPE
                    && answer.json()["code"] == kind.code()
            }
        }
    }
}

/// Returns the response of a route to a caller for an object.
pub(super) fn expected(route: &Route, case: &Case, caller: &Caller, object: Object) -> Expected {
    use ProblemKind as P;
    let lists = |access| route.access.contains(&access);
    let kind = caller.kind;
    if lists(Access::Public) || route.access == [Access::RequestSecret] {
        // The route does not read the bearer credential.
        return case.accepted;
    }
    if lists(Access::RequestSecret) {
        return match kind {
            CallerKind::Anonymous => case.accepted,
            CallerKind::PlatformAdmin | CallerKind::Key(_) => Expected::Problem(P::Forbidden),
            CallerKind::Inactive => Expected::Problem(P::CredentialInvalid),
            _ if object == Object::Own => case.accepted,
            _ => Expected::Problem(P::NotFound),
        };
    }
    if let Some(problem) = credential_problem(route, kind) {
        return Expected::Problem(problem);
    }
    if kind == CallerKind::EarlierAdmin && (lists(Access::RecentAdmin) || lists(Access::RecentMember)) {
        return Expected::Problem(P::ReauthenticationRequired);
    }
    let by_role = match kind {
        CallerKind::Anonymous | CallerKind::Inactive => false,
        CallerKind::Member => lists(Access::Member) || lists(Access::RecentMember),
        CallerKind::Admin | CallerKind::EarlierAdmin => {
            lists(Access::Admin)
                || lists(Access::RecentAdmin)
                || lists(Access::Member)
                || lists(Access::RecentMember)
        }
        CallerKind::Key(scope) => lists(Access::Key(scope)) || lists(Access::AnyKey),
        CallerKind::PlatformAdmin => lists(Access::PlatformAdmin),
    };
    let as_owner = lists(Access::Owner) && object == Object::Own;
    if !by_role && !as_owner {
        return Expected::Problem(role_problem(route, kind));
    }
    match object {
        Object::Missing | Object::Malformed => Expected::Problem(P::NotFound),
        Object::Foreign if !sees_every_tenant(route, kind) => Expected::Problem(P::NotFound),
        _ => case.accepted,
    }
}

/// Returns the problem of a credential that the route does not accept at all.
fn credential_problem(route: &Route, caller: CallerKind) -> Option<ProblemKind> {
    match caller {
        CallerKind::Anonymous => Some(ProblemKind::Unauthenticated),
        CallerKind::PlatformAdmin if !route.access.contains(&Access::PlatformAdmin) => {
            Some(ProblemKind::Forbidden)
        }
        // The route accepts neither sessions nor API keys, so it does not look them up.
        CallerKind::Inactive if route.access == [Access::PlatformAdmin] => Some(ProblemKind::Forbidden),
        CallerKind::Inactive => Some(ProblemKind::CredentialInvalid),
        _ => None,
    }
}

/// Returns the problem of an active caller without the required role. Objects that only some users of a tenant can see
/// are reported as not found, but not to API keys, which the route never accepts.
fn role_problem(route: &Route, caller: CallerKind) -> ProblemKind {
    let takes_keys = route.access.iter().any(|access| matches!(access, Access::Key(_)));
    let is_hidden = route.access.contains(&Access::Owner)
        || route.access.contains(&Access::Member) && route.path_parameters().next().is_some();
    match caller {
        CallerKind::Key(_) if takes_keys => ProblemKind::InsufficientScope,
        CallerKind::Key(_) => ProblemKind::Forbidden,
        _ if is_hidden => ProblemKind::NotFound,
        _ => ProblemKind::Forbidden,
    }
}

/// Returns whether the caller is the platform administrator on a route for all tenants.
fn sees_every_tenant(route: &Route, caller: CallerKind) -> bool {
    caller == CallerKind::PlatformAdmin && !route.headers.contains(&Header::TenantOfPlatformAdmin)
}
