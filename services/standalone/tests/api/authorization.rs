//! Who may call what, made from the table of routes: every route with every kind of caller, on their own, their tenant's,
//! another tenant's and a missing object. A new route has no case yet, which fails here.

mod callers;
mod cases;
mod expected;
mod objects;

use contract::ProblemKind;
use contract::routes::{self, Access, Header, Route};
use testkit::TestResponse;
use testsystem::TestSystem;

use callers::{Caller, Tenants};
use cases::Case;
use expected::{Expected, expected};
use objects::{Kind, Object};

/// A request with everything decided but who sends it.
async fn ask(system: &TestSystem, route: &Route, case: &Case, caller: &Caller, id: &str) -> TestResponse {
    let mut client = system.client().header("X-Request-Id", "of-this-test");
    if let Some(bearer) = &caller.bearer {
        client = client.bearer(bearer);
    }
    for header in route.headers {
        client = match header {
            Header::Tenant => client.header("X-Tenant-ID", caller.tenant_id),
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

/// What an answer says beside the id that was asked for.
fn masked(answer: &TestResponse, id: &str) -> String {
    let mut headers = answer.headers.clone();
    headers.remove("date");
    format!("{} {headers:?} {}", answer.status, answer.body.replace(id, "{id}"))
}

#[tokio::test]
async fn every_route_lets_in_whom_the_table_names_and_nobody_else() {
    let system = TestSystem::start().await.unwrap();
    let tenants = Tenants::settle(&system).await;
    let callers = callers::all(&system, &tenants).await;
    let mut wrong = Vec::new();
    for route in routes::all() {
        let name = route.operation_id();
        let Some(case) = cases::of(route) else {
            wrong.push(format!("{name} has no case in authorization/cases.rs"));
            continue;
        };
        let mut let_in = false;
        for caller in &callers {
            let mut answers = Vec::new();
            for object in Object::of(Kind::of(route), caller) {
                let id = tenants.id_of(&system, Kind::of(route), object, caller).await;
                let expected = expected(route, &case, caller, object);
                let answer = ask(&system, route, &case, caller, &id).await;
                let_in |= expected == case.let_in;
                if !expected.is(&answer, route) {
                    wrong.push(format!(
                        "{name} by {} on {object:?}: not {expected:?} but {answer}",
                        caller.name
                    ));
                }
                answers.push((object, expected, masked(&answer, &id)));
            }
            let of = |object| answers.iter().find(|(asked, ..)| *asked == object);
            if let (Some((_, foreign, told)), Some((_, missing, silence))) =
                (of(Object::Foreign), of(Object::Missing))
                && foreign == missing
                && told != silence
            {
                wrong.push(format!("{name} by {}: {told} tells what {silence} does not", caller.name));
            }
        }
        if !let_in {
            wrong.push(format!("{name} lets nobody in"));
        }
    }
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_credential_never_reaches_into_a_tenant_that_a_header_names() {
    let system = TestSystem::start().await.unwrap();
    let tenants = Tenants::settle(&system).await;
    let callers = callers::all(&system, &tenants).await;
    let named = system.client().header("X-Tenant-ID", callers::OTHER);
    let refused = Expected::Problem(ProblemKind::TenantMismatch);
    for route in routes::all().filter(|route| route.takes_bearer() && route.access != [Access::PlatformAdmin])
    {
        let Some(case) = cases::of(route) else { continue };
        for caller in callers.iter().filter(|caller| caller.is_live() && caller.tenant_id == callers::HOME) {
            let kind = Kind::of(route);
            let id = tenants.id_of(&system, kind, Object::of(kind, caller)[0], caller).await;
            let client = caller.bearer.iter().fold(named.clone(), |client, bearer| client.bearer(bearer));
            let answer = case.send(&client.header("X-User-ID", &id), route, &id).await;
            let name = route.operation_id();
            assert!(refused.is(&answer, route), "{name} by {}: {answer}", caller.name);
        }
    }
}
