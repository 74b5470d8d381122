//! The authorization matrix, generated from the route table: every route with every kind of caller, for the caller's own
//! object and objects of the same tenant, of another tenant, and unknown ones. A new route needs a case in `cases.rs`.

mod callers;
mod cases;
mod expected;
mod objects;

use contract::ProblemKind;
use contract::routes::{self, Access, Header, Route};
use tenancy::UserId;
use testkit::TestResponse;
use testsystem::TestSystem;

use callers::{Caller, CallerKind, Tenants};
use cases::Case;
use expected::{Expected, expected};
use objects::{Kind, Object};

/// Sends the request of a case as a caller.
async fn send(system: &TestSystem, route: &Route, case: &Case, caller: &Caller, id: &str) -> TestResponse {
    let mut client = system.client().header("X-Request-Id", "authorization");
    if let Some(bearer) = &caller.bearer {
        client = client.bearer(bearer);
    }
    for header in route.headers {
        client = match header {
            Header::Tenant | Header::TenantOrField | Header::OptionalTenant => {
                client.header("X-Tenant-ID", caller.tenant_id)
            }
            Header::TenantOfPlatformAdmin if caller.is_platform_admin() => {
                client.header("X-Tenant-ID", caller.tenant_id)
            }
            Header::TenantOfPlatformAdmin => client,
            Header::User => client.header("X-User-ID", id),
            Header::Session => client.header("X-Session-ID", cases::UNKNOWN_SESSION),
        };
    }
    case.send(&client, route, id).await
}

/// Sends the request of a route without a credential, for an unknown object.
pub(crate) async fn send_anonymously(system: &TestSystem, route: &Route) -> TestResponse {
    let case = cases::of(route).unwrap();
    send(system, route, &case, &Caller::anonymous(), &UserId::generate().to_string()).await
}

/// Returns a response as text without the id of the object and the date.
fn masked(response: &TestResponse, id: &str) -> String {
    let mut headers = response.headers.clone();
    headers.remove("date");
    format!("{} {headers:?} {}", response.status, response.body.replace(id, "{id}"))
}

#[tokio::test]
async fn every_route_accepts_exactly_the_callers_of_the_route_table() {
    let system = TestSystem::start().await.unwrap();
    let tenants = Tenants::create(&system).await;
    let callers = callers::all(&system, &tenants).await;
    let mut wrong = Vec::new();
    for route in routes::all() {
        let name = route.operation_id();
        let Some(case) = cases::of(route) else {
            wrong.push(format!("{name} has no case in authorization/cases.rs"));
            continue;
        };
        let mut accepted = false;
        for caller in &callers {
            let mut responses = Vec::new();
            for object in Object::of(Kind::of(route), caller) {
                let id = tenants.id_of(&system, Kind::of(route), object, caller).await;
                let expected = expected(route, &case, caller, object);
                let response = send(&system, route, &case, caller, &id).await;
                accepted |= expected == case.accepted;
                if !expected.is(&response, route) {
                    wrong.push(format!(
                        "{name} by {} on {object:?}: expected {expected:?}, got {response}",
                        caller.name
                    ));
                }
                responses.push((object, expected, masked(&response, &id)));
            }
            let of = |object| responses.iter().find(|(requested, ..)| *requested == object);
            if let (Some((_, foreign, foreign_text)), Some((_, missing, missing_text))) =
                (of(Object::Foreign), of(Object::Missing))
                && foreign == missing
                && foreign_text != missing_text
            {
                wrong.push(format!("{name} by {}: {foreign_text} differs from {missing_text}", caller.name));
            }
        }
        if !accepted {
            wrong.push(format!("{name} accepts no caller"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong responses:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_caller_without_access_gets_401_or_403_also_for_an_invalid_body_or_query() {
    let system = TestSystem::start().await.unwrap();
    let tenants = Tenants::create(&system).await;
    let callers = callers::all(&system, &tenants).await;
    let (mut tried, mut wrong) = (0, Vec::new());
    for route in routes::all() {
        let Some(case) = cases::of(route).and_then(|case| case.invalid(route)) else { continue };
        for caller in &callers {
            let has_no_access = |object| match expected(route, &case, caller, object) {
                Expected::Problem(kind) if matches!(kind.status(), 401 | 403) => {
                    let problem = Expected::Problem(kind);
                    (problem != case.accepted).then_some((object, problem))
                }
                // Objects are looked up after the body and the query are checked.
                _ => None,
            };
            let rejected = Object::of(Kind::of(route), caller).into_iter().find_map(has_no_access);
            let Some((object, problem)) = rejected else { continue };
            let id = tenants.id_of(&system, Kind::of(route), object, caller).await;
            let response = send(&system, route, &case, caller, &id).await;
            tried += 1;
            if !problem.is(&response, route) {
                let name = route.operation_id();
                wrong.push(format!("{name} by {}: expected {problem:?}, got {response}", caller.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong responses:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 100, "{tried}");
}

#[tokio::test]
async fn sensitive_requests_need_a_recent_password_login() {
    let system = TestSystem::start().await.unwrap();
    let tenants = Tenants::create(&system).await;
    let callers = callers::all(&system, &tenants).await;
    let of_kind = |kind| callers.iter().find(|caller| caller.kind == kind).unwrap();
    let (recent, earlier) = (of_kind(CallerKind::Admin), of_kind(CallerKind::EarlierAdmin));
    let required = Expected::Problem(ProblemKind::ReauthenticationRequired);
    // A password change needs it only from a user with a second factor (services/identity/tests/throttle).
    let listed = |route: &&Route| {
        route.all_problems().contains(&ProblemKind::ReauthenticationRequired)
            && route.path != routes::CHANGE_PASSWORD.path
    };
    for route in routes::all().filter(listed) {
        let name = route.operation_id();
        let case = cases::sensitive_of(route).unwrap_or_else(|| panic!("{name} has no case in sensitive_of"));
        for (caller, expected) in [(earlier, required), (recent, case.accepted)] {
            let id = match Kind::of(route) {
                Some(Kind::Invite) => tenants.invite_of_admin().await,
                kind => tenants.id_of(&system, kind, Object::Tenants, caller).await,
            };
            let response = send(&system, route, &case, caller, &id).await;
            assert!(expected.is(&response, route), "{name} by {}: {response}", caller.name);
        }
    }
}

#[tokio::test]
async fn rejects_a_header_that_names_another_tenant() {
    let system = TestSystem::start().await.unwrap();
    let tenants = Tenants::create(&system).await;
    let callers = callers::all(&system, &tenants).await;
    let named = system.client().header("X-Tenant-ID", callers::OTHER);
    let mismatch = Expected::Problem(ProblemKind::TenantMismatch);
    for route in routes::all().filter(|route| route.takes_bearer() && route.access != [Access::PlatformAdmin])
    {
        let Some(case) = cases::of(route) else { continue };
        for caller in callers.iter().filter(|caller| caller.is_active() && caller.tenant_id == callers::HOME)
        {
            let kind = Kind::of(route);
            let id = tenants.id_of(&system, kind, Object::of(kind, caller)[0], caller).await;
            let client = caller.bearer.iter().fold(named.clone(), |client, bearer| client.bearer(bearer));
            let response = case.send(&client.header("X-User-ID", &id), route, &id).await;
            let name = route.operation_id();
            assert!(mismatch.is(&response, route), "{name} by {}: {response}", caller.name);
        }
    }
}
