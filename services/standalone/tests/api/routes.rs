//! The table of routes against what is really served.

use std::collections::{BTreeMap, BTreeSet};

use contract::routes;
use reqwest::Method;
use testkit::TestResponse;
use testsystem::TestSystem;

/// The methods of a path, as the answer to a wrong one lists them.
fn allowed(answer: &TestResponse) -> BTreeSet<String> {
    let allow = answer.headers.get("allow").and_then(|value| value.to_str().ok()).unwrap_or_default();
    allow.split(',').filter(|method| *method != "HEAD").map(str::to_owned).collect()
}

#[tokio::test]
async fn every_path_of_the_table_takes_exactly_the_methods_that_the_table_lists() {
    let system = TestSystem::start().await.unwrap();
    let mut listed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for route in routes::all() {
        listed.entry(route.path).or_default().insert(route.method.as_str().to_owned());
    }
    let nobodys = Method::from_bytes(b"PROBE").unwrap();
    for (path, methods) in listed {
        let filled = path.replace(['{', '}'], "");
        let client = system.client();
        let answer = client.send(client.request(nobodys.clone(), &filled)).await;
        answer.expect_problem(405, "method_not_allowed");
        assert_eq!(allowed(&answer), methods, "{path}");
    }
}
