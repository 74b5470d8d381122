//! The operation object of a route.

use std::collections::BTreeMap;

use contract::routes::{Access, RequestBody, Route};
use serde_json::{Value, json};
use udm::UdmEvent;

use super::components::{Components, header_parameter};
use super::responses::responses;

/// Returns the operation of a route.
pub(crate) fn operation(route: &Route, components: &mut Components) -> Value {
    let mut operation = json!({
        "operationId": route.operation_id(),
        "tags": [route.group],
        "summary": route.summary(),
        "description": description(route),
        "security": security(route.access),
        "parameters": parameters(route, components),
        "responses": responses(route, components),
    });
    if let Some(body) = route.body {
        let required = match body {
            RequestBody::Form(of) => Components::fields(of).any(|field| field.required),
            RequestBody::Json(_) | RequestBody::Event | RequestBody::Events => true,
        };
        operation["requestBody"] = json!({ "required": required, "content": content(body, components) });
    }
    operation
}

fn description(route: &Route) -> String {
    let callers: Vec<_> = route.access.iter().map(ToString::to_string).collect();
    format!("{}\n\nAllowed callers: {}.", route.description(), callers.join("; ")).trim().to_owned()
}

/// Returns the alternative security requirements, each with the required role or scope.
fn security(access: &[Access]) -> Value {
    let mut schemes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for access in access {
        let (scheme, required) = match access {
            Access::Public | Access::RequestSecret => ("", vec![]),
            Access::Owner | Access::Member => ("session", vec![]),
            Access::Admin => ("session", vec!["admin".to_owned()]),
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

fn parameters(route: &Route, components: &mut Components) -> Vec<Value> {
    let in_path = route.path_parameters().map(|(name, of)| {
        let schema = components.request_schema(of);
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let mut parameters: Vec<_> = in_path.collect();
    parameters.extend(route.headers.iter().map(|header| {
        let name = header_parameter(*header);
        json!({ "$ref": format!("#/components/parameters/{name}") })
    }));
    for fields in route.query {
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

fn content(body: RequestBody, components: &mut Components) -> Value {
    match body {
        RequestBody::Json(of) => json!({ "application/json": { "schema": components.request_schema(of) } }),
        RequestBody::Form(of) => {
            let schema = components.request_schema(of);
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
                    "type": "array", "items": components.request_schema_of::<UdmEvent>(), "minItems": 1, "maxItems": 1000,
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
