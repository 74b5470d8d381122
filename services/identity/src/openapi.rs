//! The OpenAPI 3.1 document of the whole API, made from the table of routes and the types' schemas. Nothing in it depends
//! on the installation: every copy of a version is the same.

mod components;
mod operation;
mod responses;
mod shared;

use contract::API_PREFIX;
use contract::routes::GROUPS;
use serde_json::{Map, Value, json};

use components::Components;
use operation::operation;

const DESCRIPTION: &str = include_str!("openapi/description.md");

/// The document.
pub fn document() -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    for route in GROUPS.iter().flat_map(|group| group.routes) {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut components);
    }
    let parameters = shared::parameters(&mut components);
    let mut components = components.finish();
    components["parameters"] = parameters;
    components["headers"] = shared::headers();
    components["securitySchemes"] = shared::security_schemes();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "svc",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Accounts, sessions and event intake for many tenants",
            "description": DESCRIPTION,
            "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": API_PREFIX, "description": "The installation that serves this document" }],
        "tags": GROUPS
            .iter()
            .map(|group| json!({ "name": group.name, "description": group.description }))
            .collect::<Vec<_>>(),
        "paths": paths,
        "components": components,
    })
}

/// The document as it is served and checked in: indented, with a newline at the end.
pub fn pretty_document() -> String {
    format!("{:#}\n", document())
}

#[cfg(test)]
mod tests;
