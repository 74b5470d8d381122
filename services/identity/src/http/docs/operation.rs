//! One route, as the page shows it.

use contract::ProblemKind;
use contract::routes::{Access, Header, Route};
use serde_json::Value;

use super::schema::{Field, Kind, TypeView, reference};
use super::{markdown, text};

/// A route.
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) about: String,
    pub(super) callers: Vec<String>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) answers: Vec<Answer>,
    pub(super) problems: Vec<ProblemKind>,
    pub(super) curl: String,
}

/// A part of the path, a query parameter or a header.
pub(super) struct Parameter {
    pub(super) place: String,
    pub(super) field: Field,
}

/// What is sent.
pub(super) struct Body {
    pub(super) kind: Kind,
    pub(super) media_types: Vec<String>,
    /// Of a body that is one object.
    pub(super) fields: Vec<Field>,
}

/// What is answered when all is well.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) about: String,
    pub(super) kind: Option<Kind>,
}

impl Operation {
    pub(super) fn of(route: &Route, document: &Value) -> Self {
        let operation = &document["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        Self {
            id: route.operation_id(),
            method: route.method.as_str(),
            path: route.path,
            summary: route.summary(),
            about: markdown(&route.description()),
            callers: route.access.iter().map(|access| markdown(&access.to_string())).collect(),
            parameters: parameters.map(|one| Parameter::of(resolved(one, document), document)).collect(),
            body: operation["requestBody"]["content"].as_object().map(|content| Body::of(content, document)),
            answers: route.responses.iter().map(|answer| Answer::of(answer, operation)).collect(),
            problems: route.all_problems(),
            curl: curl(route, operation, document),
        }
    }
}

/// What a reference leads to, or the thing itself.
fn resolved<'a>(value: &'a Value, document: &'a Value) -> &'a Value {
    let target = value["$ref"].as_str().and_then(|path| document.pointer(path.trim_start_matches('#')));
    target.unwrap_or(value)
}

impl Parameter {
    fn of(parameter: &Value, document: &Value) -> Self {
        let schema = &parameter["schema"];
        let about = match parameter["description"].as_str() {
            Some(about) => about.to_owned(),
            None => text(&resolved(schema, document)["description"]),
        };
        let field = Field {
            name: text(&parameter["name"]),
            kind: Kind::of(schema),
            required: parameter["required"] == true,
            about: markdown(&about),
        };
        Self { place: text(&parameter["in"]), field }
    }
}

impl Body {
    fn of(content: &serde_json::Map<String, Value>, document: &Value) -> Self {
        let schema = &content["application/json"]["schema"];
        let fields = match reference(schema) {
            Some(name) => TypeView::of(&name, resolved(schema, document)).fields,
            None => Vec::new(),
        };
        Self { kind: Kind::of(schema), media_types: content.keys().cloned().collect(), fields }
    }
}

impl Answer {
    fn of(answer: &contract::routes::RouteResponse, operation: &Value) -> Self {
        let content = &operation["responses"][answer.status.to_string()]["content"]["application/json"];
        let kind = content["schema"].is_object().then(|| Kind::of(&content["schema"]));
        Self { status: answer.status, about: markdown(answer.description), kind }
    }
}

/// The request as a command, with `$api` and what the caller knows as variables.
fn curl(route: &Route, operation: &Value, document: &Value) -> String {
    let path = route.path.replace('{', "$").replace('}', "");
    let mut words = vec![format!("curl \"$api{path}\"")];
    let content = &operation["requestBody"]["content"]["application/json"];
    match (route.method.as_str(), content.is_object()) {
        ("GET", _) | ("POST", true) => {}
        (method, _) => words.push(format!("-X {method}")),
    }
    if route.takes_bearer() && !route.access.contains(&Access::RequestSecret) {
        words.push("-H \"Authorization: Bearer $token\"".to_owned());
    }
    words.extend(route.headers.iter().filter_map(|header| match header {
        Header::Tenant => Some("-H 'X-Tenant-ID: acme'".to_owned()),
        Header::TenantOfPlatformAdmin => None,
        Header::User => Some("-H \"X-User-ID: $user_id\"".to_owned()),
        Header::Session => Some("-H \"X-Session-ID: $token\"".to_owned()),
    }));
    let of_type = &resolved(&content["schema"], document)["examples"][0];
    let example = [&content["example"], of_type].into_iter().find(|example| !example.is_null());
    words.extend(example.map(|example| format!("--json '{example}'")));
    words.join(" \\\n  ")
}
