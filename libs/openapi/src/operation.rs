//! The operation object of a route, with its responses: successes and problems by status.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use contract::problem::MEDIA_TYPE;
use contract::routes::{Access, Operation, RequestBody, ResponseBody, Route, RouteResponse, SchemaRef};
use contract::{Problem, ProblemKind};
use serde_json::{Value, json};
use udm::{MAX_BATCH_EVENTS, UdmEvent};

use super::components::{Components, header_parameter};

/// Returns the operation of a route.
pub(crate) fn operation(of: &Operation, components: &mut Components) -> Value {
    let route = &of.route;
    let mut operation = json!({
        "operationId": route.operation_id(),
        "tags": [route.group],
        "summary": route.summary(),
        "description": description(route),
        "security": security(route.access),
        "parameters": parameters(of, components),
        "responses": responses(of, components),
    });
    if let Some(body) = route.body {
        // A body of events is required.
        let required = of.body.is_none_or(|of| Components::fields(of).any(|field| field.required));
        let content = content(body, of.body, components);
        operation["requestBody"] = json!({ "required": required, "content": content });
    }
    operation
}

fn description(route: &Route) -> String {
    format!("{}\n\nAllowed callers: {}.", route.description(), route.callers()).trim().to_owned()
}

/// Returns the alternative security requirements, each with the required role or scope.
fn security(access: &[Access]) -> Value {
    let mut schemes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for access in access {
        let (scheme, required) = match access {
            Access::Public | Access::RequestSecret => ("", vec![]),
            Access::Owner | Access::Member => ("session", vec![]),
            Access::RecentMember => ("session", Vec::new()),
            Access::Admin | Access::RecentAdmin => ("session", vec!["admin".to_owned()]),
            Access::Key(scope) => ("api_key", vec![scope.to_string()]),
            Access::AnyKey => ("api_key", vec![]),
            Access::PlatformAdmin => ("platform", vec![]),
        };
        // A route that accepts every session does not require an administrator.
        let least = schemes.entry(scheme).or_insert_with(|| required.clone());
        if required.is_empty() {
            least.clear();
        }
    }
    if schemes.keys().eq([""].iter()) {
        return json!([]);
    }
    schemes
        .iter()
        .map(|(scheme, required)| if scheme.is_empty() { json!({}) } else { json!({ *scheme: required }) })
        .collect()
}

fn parameters(of: &Operation, components: &mut Components) -> Vec<Value> {
    let in_path = of.path_parameters().map(|(name, of)| {
        let schema = components.request_schema(of);
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let mut parameters: Vec<_> = in_path.collect();
    parameters.extend(of.route.headers.iter().map(|header| {
        let name = header_parameter(*header);
        json!({ "$ref": format!("#/components/parameters/{name}") })
    }));
    for fields in of.query {
        parameters.extend(Components::fields(*fields).map(|field| {
            json!({
                "name": field.name,
                "in": "query",
                "required": field.required,
                "description": field.description,
                "schema": field.schema,
            })
        }));
    }
    parameters
}

fn content(body: RequestBody, of: Option<SchemaRef>, components: &mut Components) -> Value {
    let schema = of.map(|of| components.request_schema(of));
    match body {
        RequestBody::Json => json!({ "application/json": { "schema": schema } }),
        RequestBody::Form => {
            json!({
                "application/x-www-form-urlencoded": { "schema": schema },
                "application/json": { "schema": schema },
            })
        }
        RequestBody::Event => json!({
            "application/json": { "schema": components.request_schema_of::<UdmEvent>(), "example": event("1") },
        }),
        RequestBody::Events => json!({
            "application/json": {
                "schema": {
                    "type": "array", "items": components.request_schema_of::<UdmEvent>(), "minItems": 1, "maxItems": MAX_BATCH_EVENTS,
                },
                "example": [event("1"), event("2")],
            },
            "application/x-ndjson": {
                "schema": { "type": "string", "description": "One event per line." },
                "example": format!("{}\n{}\n", event("1"), event("2")),
            },
        }),
    }
}

fn event(id: &str) -> Value {
    json!({ "source_id": "fw-1", "event_id": id, "metadata": { "event_type": "NETWORK_CONNECTION" } })
}

/// Returns the responses of a route. A response with problems only is shared between the routes that have the same ones.
fn responses(of: &Operation, components: &mut Components) -> BTreeMap<String, Value> {
    let mut responses = BTreeMap::new();
    for response in of.responses {
        responses.insert(response.status.to_string(), success(response, components));
    }
    for kinds in of.route.all_problems().chunk_by(|a, b| a.status() == b.status()) {
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
    let headers = headers(response.status, matches!(response.status, 429 | 503));
    let mut value = json!({ "description": response.description, "headers": headers });
    match response.body {
        ResponseBody::Empty => {}
        ResponseBody::Json(of) => {
            value["content"]["application/json"]["schema"] = components.response_schema(of);
        }
        ResponseBody::EventStream(of) => {
            let data = components.response_schema(of);
            value["content"]["text/event-stream"]["schema"] = json!({
                "type": "string", "contentMediaType": "application/json", "contentSchema": data,
            });
        }
        ResponseBody::Document => {
            value["content"]["application/json"]["schema"] = json!({ "type": "object" });
        }
        ResponseBody::Page => value["content"]["text/html"]["schema"] = json!({ "type": "string" }),
        ResponseBody::File => {
            for media_type in ["text/css", "text/javascript", "image/png", "image/svg+xml"] {
                value["content"][media_type]["schema"] = json!({ "type": "string" });
            }
        }
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
