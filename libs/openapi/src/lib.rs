//! The OpenAPI 3.1 document of the whole API, generated from the route table and the schemas of the wire types.
//!
//! `make gen` writes it to `catalog/openapi.json`, which identity serves. It is the same for every installation of a version.

mod components;
mod operation;

use contract::API_PREFIX;
use contract::routes::GROUPS;
use serde_json::{Map, Value, json};

use components::Components;
use operation::operation;

const DESCRIPTION: &str = include_str!("description.md");

/// Returns the document.
pub fn document() -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    for of in GROUPS.iter().flat_map(|group| group.operations) {
        let path = paths.entry(of.route.path).or_insert_with(|| json!({}));
        path[of.route.method.as_str().to_ascii_lowercase()] = operation(of, &mut components);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "svc",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Accounts, sessions and event ingestion for many tenants",
            "description": DESCRIPTION,
            "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": API_PREFIX, "description": "The installation that serves this document" }],
        "tags": GROUPS
            .iter()
            .map(|group| json!({ "name": group.name, "description": group.description }))
            .collect::<Vec<_>>(),
        "paths": paths,
        "components": components.finish(),
    })
}

/// Returns the document as checked in and served: indented, with a final newline.
pub fn pretty_document() -> String {
    format!("{:#}\n", document())
}

#[cfg(test)]
mod tests;
