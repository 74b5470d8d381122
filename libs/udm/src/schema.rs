//! The JSON Schema of an event, derived from the table of known fields.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::UdmEvent;
use crate::fields::{
    EVENT, Field, MAX_EVENT_ID_BYTES, MAX_SOURCE_ID_BYTES, MAX_TYPE_BYTES, Object, Rule, TextRule,
};

/// Returns the JSON Schema (draft 2020-12) of an event.
///
/// It is slightly weaker than `parse`: it counts lengths in characters instead of bytes, has no limits of size and depth, and
/// allows year 0000 and names that differ from a known name only in case, `_` and `-`.
pub fn schema() -> Schema {
    schemars::schema_for!(UdmEvent)
}

/// Returns the schema as indented text with a final newline, as it is checked in.
pub fn pretty_schema() -> String {
    format!("{:#}\n", schema().as_value())
}

impl JsonSchema for UdmEvent {
    fn schema_name() -> Cow<'static, str> {
        EVENT.name.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        EVENT.schema(generator)
    }
}

impl Object {
    /// Generators of clients create a property for each item of `properties`, so the second spellings are in
    /// `patternProperties`.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let (mut properties, mut second_spellings) = (Map::new(), Map::new());
        for field in self.fields {
            let mut schema = field.schema(generator);
            if field.has_two_spellings() {
                second_spellings.insert(format!("^{}$", field.json_name), schema.clone());
            }
            schema["description"] = field.description.into();
            properties.insert(field.name.to_owned(), schema);
        }
        let mut schema = json!({
            "type": "object",
            "description": self.description,
            "properties": properties,
            "additionalProperties": true,
        });
        if !second_spellings.is_empty() {
            let fields = self.fields.iter().filter(|field| field.has_two_spellings());
            let both = fields.map(|field| json!({ "required": [field.name, field.json_name] }));
            schema["patternProperties"] = second_spellings.into();
            schema["not"] = json!({ "anyOf": both.collect::<Vec<_>>() });
        }
        for field in self.fields.iter().filter(|field| field.is_required()) {
            schema["if"] = json!({ "not": { "required": [field.json_name] } });
            schema["then"] = json!({ "required": [field.name] });
        }
        Schema::try_from(schema).unwrap_or_default()
    }

    /// Returns a reference to the schema, and adds the schema to the definitions.
    fn reference(&self, generator: &mut SchemaGenerator) -> Value {
        if !generator.definitions().contains_key(self.name) {
            // An object can contain itself.
            generator.definitions_mut().insert(self.name.to_owned(), Value::Null);
            let schema = self.schema(generator).to_value();
            generator.definitions_mut().insert(self.name.to_owned(), schema);
        }
        json!({ "$ref": format!("#{}/{}", generator.settings().definitions_path, self.name) })
    }
}

impl Field {
    fn schema(&self, generator: &mut SchemaGenerator) -> Value {
        let schema = self.rule.schema(generator);
        if self.is_required() { schema } else { or_null(schema) }
    }
}

/// Returns the schema of an optional value. `null` counts as absent.
fn or_null(mut schema: Value) -> Value {
    let Some(name) = schema["type"].as_str() else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    schema["type"] = json!([name, "null"]);
    schema
}

impl Rule {
    fn schema(self, generator: &mut SchemaGenerator) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Object(object) => object.reference(generator),
            Self::OpenObject => json!({ "type": "object", "additionalProperties": true }),
            Self::List { items, max } => {
                let mut list = json!({ "type": "array", "items": items.schema(generator) });
                if max < usize::MAX {
                    list["maxItems"] = max.into();
                }
                list
            }
            Self::Text(rule) => rule.schema(),
            Self::Port => json!({ "type": "integer", "format": "uint16", "minimum": 0, "maximum": u16::MAX }),
        }
    }
}

impl TextRule {
    fn schema(self) -> Value {
        let mut schema = match self {
            Self::Any => json!({}),
            Self::Within(max) => json!({ "maxLength": max }),
            Self::SourceId => json!({
                "minLength": 1,
                "maxLength": MAX_SOURCE_ID_BYTES,
                "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
            }),
            Self::EventId => json!({ "pattern": format!(r"^[A-Za-z0-9._:\-]{{1,{MAX_EVENT_ID_BYTES}}}$") }),
            Self::EventType => json!({ "pattern": format!("^[A-Z][A-Z0-9_]{{0,{}}}$", MAX_TYPE_BYTES - 1) }),
            Self::Timestamp => json!({ "format": "date-time" }),
            // JSON Schema has no format that includes both kinds of addresses.
            Self::Address => json!({ "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] }),
            Self::Mac => json!({ "pattern": r"^[0-9A-Fa-f]{2}([:\-][0-9A-Fa-f]{2}){5}$" }),
        };
        schema["type"] = "string".into();
        schema
    }
}
