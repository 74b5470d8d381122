use std::collections::HashSet;

use super::*;
use crate::paths::PREFIXES;

#[test]
fn each_route_stands_once_with_a_name_of_its_own() {
    let asked: HashSet<_> = all().map(|route| (route.method, route.path)).collect();
    let named: HashSet<_> = all().map(Route::operation_id).collect();
    assert_eq!((asked.len(), named.len()), (all().count(), all().count()));
}

#[test]
fn each_route_lies_below_a_prefix_of_the_path_table() {
    for route in all() {
        let below = |prefix: &str| {
            route.path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        assert!(PREFIXES.iter().any(|(prefix, _)| below(prefix)), "{}", route.path);
    }
}

#[test]
fn each_route_says_what_it_does_who_may_call_it_and_what_it_answers() {
    for route in all() {
        assert!(!route.summary().is_empty() && !route.summary().ends_with('.'), "{}", route.path);
        assert!(!route.access.is_empty() && !route.answers.is_empty(), "{}", route.path);
        assert!(!route.access.contains(&Access::Anybody) || route.access.len() == 1, "{}", route.path);
    }
}

#[test]
fn what_can_go_wrong_follows_from_what_is_asked() {
    let codes = |route: &Route| route.all_problems().iter().map(|kind| kind.code()).collect::<Vec<_>>();
    assert_eq!(codes(&GET_VERSION), ["rate_limited", "internal"]);
    assert_eq!(codes(&REQUEST_PASSWORD_RESET), ["internal"]);
    let of_form = ["body_timeout", "body_too_large", "rate_limited", "internal", "dependency_unavailable"];
    assert_eq!(codes(&START_DEVICE), of_form);
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
