//! JSON Schemas of input and output, without what a reader of the catalog does not need: titles, examples, repeated
//! descriptions, and definitions that are used once or are short.

use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Definitions up to this length are repeated where they are used.
const MAX_REPEATED_BYTES: usize = 90;

/// JSON Schema of a type that is printed or read.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T);
    simplify(&mut schema);
    inline_definitions(&mut schema);
    merge_null(&mut schema);
    schema.to_value()
}

/// Schema of text on standard input.
pub(crate) fn text_input(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// Removes annotations, and writes alternatives of constants as an enumeration.
fn simplify(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    for keyword in ["$schema", "title", "examples"] {
        object.remove(keyword);
    }
    // Rust types of numbers; `type` and `minimum` are sufficient.
    let is_rust_type = |format: &Value| {
        ["int", "uint", "double", "float"]
            .iter()
            .any(|name| format.as_str().is_some_and(|it| it.starts_with(name)))
    };
    if object.get("format").is_some_and(is_rust_type) {
        object.remove("format");
    }
    let constants = object.get("oneOf").and_then(Value::as_array).and_then(|choices| {
        choices.iter().map(|choice| choice.get("const").cloned()).collect::<Option<Vec<_>>>()
    });
    if let Some(constants) = constants {
        object.remove("oneOf");
        object.insert("enum".to_owned(), constants.into());
    }
    if let Some(Value::Object(definitions)) = object.get_mut("$defs") {
        // The fields that refer to a definition have their descriptions.
        for definition in definitions.values_mut().filter_map(Value::as_object_mut) {
            definition.remove("description");
        }
    }
    transform_subschemas(&mut simplify, schema);
}

/// Writes "this type or null" as one type.
fn merge_null(schema: &mut Schema) {
    transform_subschemas(&mut merge_null, schema);
    let Some(object) = schema.as_object_mut() else { return };
    let Some([Value::Object(choice), null]) =
        object.get("anyOf").and_then(|it| it.as_array()).map(Vec::as_slice)
    else {
        return;
    };
    if *null != json!({"type": "null"}) {
        return;
    }
    let mut merged = choice.clone();
    if let Some(Value::Array(constants)) = merged.get_mut("enum") {
        constants.push(Value::Null);
    }
    let is_enumeration = merged.contains_key("enum");
    match merged.get_mut("type") {
        Some(name @ Value::String(_)) => *name = json!([name, "null"]),
        None if is_enumeration => {}
        _ => return,
    }
    object.remove("anyOf");
    for (keyword, value) in merged {
        object.entry(keyword).or_insert(value);
    }
}

/// Replaces references to definitions that are short or are used once.
fn inline_definitions(schema: &mut Schema) {
    let Some(Value::Object(definitions)) = schema.as_object_mut().and_then(|object| object.remove("$defs"))
    else {
        return;
    };
    let mut kept = definitions.clone();
    for (name, _) in definitions {
        let reference = format!("#/$defs/{name}");
        let Some(definition) = kept.remove(&name) else { continue };
        let uses = count(schema.as_value(), &reference)
            + kept.values().map(|other| count(other, &reference)).sum::<usize>();
        let is_short = definition.to_string().len() <= MAX_REPEATED_BYTES;
        if count(&definition, &reference) > 0 || (uses > 1 && !is_short) {
            kept.insert(name, definition);
            continue;
        }
        replace(schema, &reference, &definition);
        for other in kept.values_mut() {
            if let Ok(other) = other.try_into() {
                replace(other, &reference, &definition);
            }
        }
    }
    if !kept.is_empty() {
        schema.insert("$defs".to_owned(), kept.into());
    }
}

fn count(schema: &Value, reference: &str) -> usize {
    schema.to_string().matches(&format!("\"{reference}\"")).count()
}

/// Replaces a reference by its definition. Keywords next to the reference take precedence.
fn replace(schema: &mut Schema, reference: &str, definition: &Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("$ref").is_some_and(|target| target == reference) {
        object.remove("$ref");
        for (keyword, value) in definition.as_object().into_iter().flatten() {
            object.entry(keyword).or_insert_with(|| value.clone());
        }
    }
    transform_subschemas(&mut |child: &mut Schema| replace(child, reference, definition), schema);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short definition that is used twice.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Color {
        /// Red.
        Red,
        /// Blue.
        Blue,
    }

    /// A definition that contains itself.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Tree {
        /// Color of the root.
        color: Color,
        /// A property with the name of a keyword.
        title: Option<u32>,
        children: Vec<Tree>,
        ground: Option<Color>,
    }

    #[test]
    fn schema_has_no_titles_and_repeats_only_short_definitions() {
        assert_eq!(
            schema_of::<(Tree, Tree)>(),
            json!({
                "type": "array", "prefixItems": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Tree"}],
                "minItems": 2, "maxItems": 2,
                "$defs": {"Tree": {
                    "type": "object",
                    "properties": {
                        "color": {"description": "Color of the root.", "enum": ["Red", "Blue"]},
                        "title": {"description": "A property with the name of a keyword.", "type": ["integer", "null"], "minimum": 0},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                        "ground": {"enum": ["Red", "Blue", null]},
                    },
                    "required": ["color", "children"],
                }},
            })
        );
    }
}
