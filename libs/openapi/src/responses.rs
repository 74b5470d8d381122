//! The responses of an operation: successes and problems by status.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use contract::problem::MEDIA_TYPE;
use contract::routes::{ResponseBody, Route, RouteResponse};
use contract::{Problem, ProblemKind};
use serde_json::{Value, json};

use super::components::Components;

/// Returns the responses of a route. A response with problems only is shared between the routes that have the same ones.
pub(crate) fn responses(route: &Route, components: &mut Components) -> BTreeMap<String, Value> {
    let mut responses = BTreeMap::new();
    for response in route.responses {
        responses.insert(response.status.to_string(), success(response, components));
    }
    for kinds in route.all_problems().chunk_by(|a, b| a.status() == b.status()) {
        let problem = problem(kinds, components);
        match responses.entry(kinds[0].status().to_string()) {
            Entry::Vacant(entry) => {
                entry.insert(components.share_response(&name(kinds), problem));
            }
            Entry::Occupied(entry) => merge(entry.into_mut(), problem),
        }
    }
    responses
}

/// Adds the problems of a status to another response with this status.
fn merge(response: &mut Value, mut problem: Value) {
    let descriptions =
        [&response["description"], &problem["description"]].map(|text| text.as_str().unwrap_or_default());
    response["description"] = descriptions.join("\n\n").into();
    response["headers"] = problem["headers"].take();
    response["content"][MEDIA_TYPE] = problem["content"][MEDIA_TYPE].take();
}

/// Returns the component name of a set of problems: their codes in camel case.
fn name(kinds: &[ProblemKind]) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let camel = |kind: &ProblemKind| kind.code().split('_').map(capital).collect::<String>();
    kinds.iter().map(camel).collect::<Vec<_>>().join("Or")
}

fn success(response: &RouteResponse, components: &mut Components) -> Value {
    let mut value =
        json!({ "description": response.description, "headers": headers(response.status, false) });
    match response.body {
        ResponseBody::Empty => {}
        ResponseBody::Json(of) => {
            value["content"]["application/json"]["schema"] = components.response_schema(of);
        }
        ResponseBody::Document => {
            value["content"]["application/json"]["schema"] = json!({ "type": "object" });
        }
        ResponseBody::Page => value["content"]["text/html"]["schema"] = json!({ "type": "string" }),
    }
    value
}

/// Returns the response of problems that share a status.
fn problem(kinds: &[ProblemKind], components: &mut Components) -> Value {
    let lines: Vec<_> = kinds.iter().map(|kind| format!("- `{}`: {}.", kind.code(), kind.title())).collect();
    let codes: Vec<_> = kinds.iter().map(|kind| kind.code()).collect();
    let mut schema = components.response_schema_of::<Problem>();
    schema["properties"]["code"]["enum"] = codes.into();
    let is_retryable = kinds.iter().all(|kind| kind.is_retryable());
    json!({
        "description": lines.join("\n"),
        "headers": headers(kinds[0].status(), is_retryable),
        "content": { MEDIA_TYPE: { "schema": schema } },
    })
}

fn headers(status: u16, is_retryable: bool) -> Value {
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    let mut headers = json!({ "X-Request-Id": header("RequestId") });
    if is_retryable {
        headers["Retry-After"] = header("RetryAfter");
    }
    match status {
        401 => headers["WWW-Authenticate"] = header("Challenge"),
        304 => headers["ETag"] = header("ETag"),
        _ => {}
    }
    headers
}
