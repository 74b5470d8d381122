//! The served routes against the route table.

use std::collections::{BTreeMap, BTreeSet};

use contract::routes::{self, RateLimit};
use reqwest::Method;
use testkit::TestResponse;
use testsystem::TestSystem;

use super::authorization::send_anonymously;

/// Returns the methods in `Allow`.
fn allowed(response: &TestResponse) -> BTreeSet<String> {
    let allow = response.headers.get("allow").and_then(|value| value.to_str().ok()).unwrap_or_default();
    allow.split(',').filter(|method| *method != "HEAD").map(str::to_owned).collect()
}

#[tokio::test]
async fn every_path_serves_exactly_the_methods_of_the_route_table() {
    let system = TestSystem::start().await.unwrap();
    let mut listed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for route in routes::all() {
        listed.entry(route.path).or_default().insert(route.method.as_str().to_owned());
    }
    let unsupported = Method::from_bytes(b"PROBE").unwrap();
    for (path, methods) in listed {
        let path_of_request = path.replace(['{', '}'], "");
        let client = system.client();
        let response = client.send(client.request(unsupported.clone(), &path_of_request)).await;
        // The errors of device routes are OAuth errors with the fields of a problem.
        assert_eq!(response.status, 405, "{response}");
        assert_eq!(response.json()["code"], "method_not_allowed", "{response}");
        assert_eq!(allowed(&response), methods, "{path}");
    }
}

/// Limits of the route table. Use cases have further limits, such as the one per account.
const LIMITS: [&str; 6] = ["login", "reset", "token", "device", "default", "credential"];

/// Returns how many requests each limit of the route table has counted.
async fn counted(system: &TestSystem) -> BTreeMap<String, u64> {
    let metrics = reqwest::get(format!("{}/metrics", system.admin_url)).await.unwrap().text().await.unwrap();
    let mut counted = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("svc_limiter_decisions_total{")) {
        let (labels, value) = line.rsplit_once(' ').unwrap();
        let limit = labels.split("limit=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        if LIMITS.contains(&limit) {
            *counted.entry(limit.to_owned()).or_default() += value.parse::<u64>().unwrap();
        }
    }
    counted
}

#[tokio::test]
async fn every_route_is_counted_once_by_its_rate_limit() {
    let limits = LIMITS.map(|name| (format!("SVC_LIMIT_{}", name.to_ascii_uppercase()), "1000/s"));
    let limits = limits.each_ref().map(|(name, rate)| (name.as_str(), *rate));
    let system = TestSystem::start_with(&limits).await.unwrap();
    for route in routes::all() {
        let before = counted(&system).await;
        send_anonymously(&system, route).await;
        let after = counted(&system).await;
        let increases: Vec<_> = after
            .iter()
            .map(|(limit, count)| (limit.as_str(), count - before.get(limit).copied().unwrap_or_default()))
            .filter(|(_, increase)| *increase > 0)
            .collect();
        let expected = match route.rate_limit {
            RateLimit::Unlimited => vec![],
            limit => vec![(limit.name(), 1)],
        };
        assert_eq!(increases, expected, "{} {}", route.method.as_str(), route.path);
    }
}
