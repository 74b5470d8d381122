//! Types, as tables of their fields.

use serde_json::Value;

use super::{markdown, text};

/// A type.
pub(super) struct TypeView {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) kind: Kind,
    pub(super) fields: Vec<Field>,
}

/// A field of a type, or a parameter.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) required: bool,
    pub(super) about: String,
}

/// What a value can be: words, and the type that they refer to, if any.
pub(super) struct Kind {
    pub(super) words: String,
    pub(super) of: Option<String>,
}

impl TypeView {
    pub(super) fn of(name: &str, schema: &Value) -> Self {
        let fields = schema["properties"].as_object().into_iter().flatten();
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)))
        };
        Self {
            name: name.to_owned(),
            about: markdown(&text(&schema["description"])),
            kind: Kind::of(schema),
            fields: fields
                .map(|(name, schema)| Field {
                    name: name.clone(),
                    kind: Kind::of(schema),
                    required: required(name),
                    about: markdown(&text(&schema["description"])),
                })
                .collect(),
        }
    }
}

impl Kind {
    pub(super) fn of(schema: &Value) -> Self {
        if let Some(name) = reference(schema) {
            return Self { words: String::new(), of: Some(name) };
        }
        if schema["items"].is_object() {
            let Self { words, of } = Self::of(&schema["items"]);
            return Self { words: format!("list of {words}"), of };
        }
        let choices = schema["anyOf"].as_array().into_iter().flatten();
        if let Some(choice) = choices.into_iter().find(|choice| choice["type"] != "null") {
            let Self { words, of } = Self::of(choice);
            return Self { words: format!("null or {words}"), of };
        }
        Self { words: words(schema), of: None }
    }
}

/// The name of the type that a schema refers to.
pub(super) fn reference(schema: &Value) -> Option<String> {
    schema["$ref"].as_str()?.rsplit('/').next().map(str::to_owned)
}

fn words(schema: &Value) -> String {
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        kind => text(kind),
    };
    let kind = schema["enum"].as_array().map_or(kinds, |words| {
        words.iter().map(|word| format!("“{}”", text(word))).collect::<Vec<_>>().join(" or ")
    });
    let bounds = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "length at least"),
        ("maxLength", "length at most"),
    ];
    let bounds = bounds.iter().filter(|(name, _)| !schema[name].is_null() && schema[name] != 0);
    let format = schema["format"].as_str().filter(|format| !format.starts_with("uint"));
    let kind = format.map_or(kind.clone(), |format| format!("{kind} ({format})"));
    let bounds = bounds.map(|(name, words)| format!("{words} {}", schema[name]));
    std::iter::once(kind).chain(bounds).collect::<Vec<_>>().join(", ")
}
