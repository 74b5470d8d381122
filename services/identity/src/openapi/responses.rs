//! What an operation answers: by status, what is well and what went wrong.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use contract::problem::MEDIA_TYPE;
use contract::routes::{ResponseBody, Route, RouteResponse};
use contract::{Problem, ProblemKind};
use serde_json::{Value, json};

use super::components::Components;

/// The responses of a route. Those that tell of problems alone are the same for many routes, and kept once.
pub(super) fn responses(route: &Route, components: &mut Components) -> BTreeMap<String, Value> {
    let mut responses = BTreeMap::new();
    for answer in route.responses {
        responses.insert(answer.status.to_string(), answered(answer, components));
    }
    for kinds in route.all_problems().chunk_by(|a, b| a.status() == b.status()) {
        let refused = refused(kinds, components);
        match responses.entry(kinds[0].status().to_string()) {
            Entry::Vacant(place) => {
                place.insert(components.keep_response(&name(kinds), refused));
            }
            Entry::Occupied(place) => also(place.into_mut(), refused),
        }
    }
    responses
}

/// Adds the problems of a status to what is answered with the same status when nothing of that kind is wrong.
fn also(response: &mut Value, mut refused: Value) {
    let about =
        [&response["description"], &refused["description"]].map(|text| text.as_str().unwrap_or_default());
    response["description"] = about.join("\n\n").into();
    response["headers"] = refused["headers"].take();
    response["content"][MEDIA_TYPE] = refused["content"][MEDIA_TYPE].take();
}

/// A name for a set of problems: their codes, in the form that names of types have.
fn name(kinds: &[ProblemKind]) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let camel = |kind: &ProblemKind| kind.code().split('_').map(capital).collect::<String>();
    kinds.iter().map(camel).collect::<Vec<_>>().join("Or")
}

fn answered(answer: &RouteResponse, components: &mut Components) -> Value {
    let mut response = json!({ "description": answer.description, "headers": headers(answer.status, false) });
    match answer.body {
        ResponseBody::Empty => {}
        ResponseBody::Json(of) => response["content"]["application/json"]["schema"] = components.given(of),
        ResponseBody::Document => {
            response["content"]["application/json"]["schema"] = json!({ "type": "object" })
        }
        ResponseBody::Page => response["content"]["text/html"]["schema"] = json!({ "type": "string" }),
    }
    response
}

/// The problems that share a status.
fn refused(kinds: &[ProblemKind], components: &mut Components) -> Value {
    let lines: Vec<_> = kinds.iter().map(|kind| format!("- `{}`: {}.", kind.code(), kind.title())).collect();
    let codes: Vec<_> = kinds.iter().map(|kind| kind.code()).collect();
    let mut schema = components.given_as::<Problem>();
    schema["properties"]["code"]["enum"] = codes.into();
    let waits = kinds.iter().all(|kind| kind.is_retryable());
    json!({
        "description": lines.join("\n"),
        "headers": headers(kinds[0].status(), waits),
        "content": { MEDIA_TYPE: { "schema": schema } },
    })
}

fn headers(status: u16, waits: bool) -> Value {
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    let mut headers = json!({ "X-Request-Id": header("RequestId") });
    if waits {
        headers["Retry-After"] = header("RetryAfter");
    }
    match status {
        401 => headers["WWW-Authenticate"] = header("Challenge"),
        304 => headers["ETag"] = header("ETag"),
        _ => {}
    }
    headers
}
