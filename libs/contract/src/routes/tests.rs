use std::collections::HashSet;

use super::*;
use crate::paths::{PREFIXES, Upstream};

#[test]
fn routes_and_operation_ids_are_unique() {
    let requests: HashSet<_> = all().map(|route| (route.method, route.path)).collect();
    let ids: HashSet<_> = all().map(Route::operation_id).collect();
    assert_eq!((requests.len(), ids.len()), (all().count(), all().count()));
}

#[test]
fn every_route_has_a_prefix_of_the_path_table() {
    for route in all() {
        let below = |prefix: &str| {
            route.path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        assert!(PREFIXES.iter().any(|(prefix, _)| below(prefix)), "{}", route.path);
    }
}

#[test]
fn every_route_has_a_summary_callers_and_responses() {
    for Operation { route, responses, .. } in GROUPS.iter().flat_map(|group| group.operations) {
        assert!(!route.summary().is_empty() && !route.summary().ends_with('.'), "{}", route.path);
        assert!(!route.access.is_empty() && !responses.is_empty(), "{}", route.path);
        assert!(!route.access.contains(&Access::Public) || route.access.len() == 1, "{}", route.path);
    }
}

#[test]
fn every_route_of_identity_and_session_has_a_rate_limit() {
    for route in all() {
        let by_address = !matches!(route.rate_limit, RateLimit::Unlimited | RateLimit::Credential);
        // Files of pages, and polls of devices, which must not suffer from other clients of their address.
        let is_exempt = [LOAD_PAGE_FILE.path, REDEEM_DEVICE.path].contains(&route.path);
        assert_eq!(by_address, route.upstream() != Upstream::Ingest && !is_exempt, "{}", route.path);
    }
}

#[test]
fn finds_a_route_by_method_and_path_template() {
    for route in all() {
        let found = find(route.method.as_str(), &route.full_path()).unwrap();
        assert_eq!(found.operation_id(), route.operation_id());
    }
    assert!(find("GET", "/api/v1/auth/password/login").is_none());
    assert!(find("GET", "/version").is_none());
}

#[test]
fn finds_the_route_of_a_request() {
    for route in all() {
        let parameters: Vec<_> = route.path_parameters().map(|_| &"x y" as &dyn std::fmt::Display).collect();
        let found = match_request(route.method.as_str(), &route.path_with(&parameters)).unwrap();
        assert_eq!(found.operation_id(), route.operation_id());
    }
    assert_eq!(match_request("GET", "/users?email=a/b").unwrap().path, "/users");
    assert_eq!(match_request("GET", "/users/invites").unwrap().path, "/users/invites");
    for (method, path) in [("GET", "/users/"), ("GET", "/users/1/2"), ("PUT", "/users"), ("GET", "users")] {
        assert!(match_request(method, path).is_none(), "{method} {path}");
    }
}

#[test]
fn a_request_that_creates_something_is_not_idempotent() {
    let repeatable: Vec<_> = all()
        .filter(|route| route.is_idempotent() && !matches!(route.method, Method::Get | Method::Delete))
        .map(Route::operation_id)
        .collect();
    assert_eq!(
        repeatable,
        [
            "inspect_password_reset",
            "rename_passkey",
            "log_out",
            "inspect_device",
            "update_user",
            "inspect_invite",
            "delete_quarantined",
            "create_consumer",
            "pause_consumer",
            "resume_consumer",
            "reset_consumer",
            "delete_dead_letters",
            "update_tenant"
        ]
    );
}

#[test]
fn every_scope_grants_a_route() {
    for scope in crate::Scope::ALL {
        assert!(all().any(|route| route.access.contains(&Access::Key(*scope))), "{scope}");
    }
}

#[test]
fn pointers_of_errors_are_unambiguous() {
    // A pointer names a field of the body or a query parameter.
    let has_events = |route: &Route| matches!(route.body, Some(RequestBody::Event | RequestBody::Events));
    // The parameter of the event routes is no known field of an event.
    for route in all().filter(|route| !has_events(route)) {
        assert!(route.body.is_none() || !route.has_query, "{}", route.path);
    }
}

#[test]
fn path_parameters_are_replaced_and_encoded() {
    assert_eq!(WHOAMI.path_with(&[]), "/auth/session");
    assert_eq!(RESEND_INVITE.path_with(&[&7]), "/users/invites/7/resend");
    assert_eq!(READ_PROBLEM.path_with(&[&"a/b ä"]), "/problems/a%2Fb%20%C3%A4");
}

#[test]
fn problems_follow_from_the_definition_of_the_route() {
    let codes = |route: &Route| route.all_problems().iter().map(|kind| kind.code()).collect::<Vec<_>>();
    assert_eq!(codes(&GET_VERSION), ["rate_limited", "internal"]);
    assert_eq!(codes(&REQUEST_PASSWORD_RESET), ["internal"]);
    assert_eq!(codes(&START_DEVICE), [] as [&str; 0], "its errors are OAuth errors");
    assert_eq!(
        codes(&REVOKE_INVITE),
        [
            "header_missing",
            "header_invalid",
            "unauthenticated",
            "credential_invalid",
            "forbidden",
            "insufficient_scope",
            "tenant_mismatch",
            "not_found",
            "user_exists",
            "rate_limited",
            "internal",
            "dependency_unavailable",
        ]
    );
}
