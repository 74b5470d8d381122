//! The JSON Schema of an event, derived from the table of known fields.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::UdmEvent;
use crate::fields::{
    EVENT, Field, Integer, MAX_EVENT_ID_BYTES, MAX_SOURCE_ID_BYTES, MAX_TYPE_BYTES, Object, Rule, TextRule,
};

/// Returns the JSON Schema (draft 2020-12) of an event.
///
/// It is weaker than `parse`: it counts lengths in characters instead of bytes, has no limits of size and depth, and does not check the
/// range of an integer in a string, the address before a zone, the range of an instant, year 0000, wrapped events, both spellings of one
/// field in an object without a description, and names that differ from a known name only in case, `_` and `-`.
pub fn schema() -> Schema {
    let mut definitions = Map::new();
    let mut schema = Schemas { definitions: &mut definitions, path: "/$defs", is_complete: true }.event();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = EVENT.name.into();
    schema["$defs"] = definitions.into();
    Schema::try_from(schema).unwrap_or_default()
}

/// Returns the schema as indented text with a final newline, as it is checked in.
pub fn pretty_schema() -> String {
    format!("{:#}\n", schema().as_value())
}

/// The schema for documents that describe more than events: without the fields of objects that have no description.
impl JsonSchema for UdmEvent {
    fn schema_name() -> Cow<'static, str> {
        EVENT.name.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let path = generator.settings().definitions_path.to_string();
        let mut schemas =
            Schemas { definitions: generator.definitions_mut(), path: &path, is_complete: false };
        Schema::try_from(schemas.event()).unwrap_or_default()
    }
}

/// The schemas of objects.
struct Schemas<'d> {
    definitions: &'d mut Map<String, Value>,
    /// Path of the definitions in the document.
    path: &'d str,
    /// Whether objects without a description have schemas.
    is_complete: bool,
}

impl Schemas<'_> {
    fn event(&mut self) -> Value {
        let mut schema = self.object(&EVENT);
        for field in EVENT.fields.iter().filter(|field| field.is_required()) {
            schema["if"] = json!({ "not": { "required": [field.json_name] } });
            schema["then"] = json!({ "required": [field.name] });
        }
        schema
    }

    /// Generators of clients create a property for each item of `properties`, so the second spellings are in `patternProperties`. An
    /// object without a description has only patterns, one for all names of a type, so that the schema stays small.
    fn object(&mut self, object: &Object) -> Value {
        let is_described = !object.description.is_empty();
        let (mut properties, mut names) = (Map::new(), BTreeMap::<String, (Value, Vec<&str>)>::new());
        for field in object.fields {
            let mut schema = self.field(field);
            let (_, names) = names.entry(schema.to_string()).or_insert_with(|| (schema.clone(), vec![]));
            if !is_described {
                names.push(field.name);
            }
            if field.has_two_spellings() {
                names.push(field.json_name);
            }
            if is_described {
                if !field.description.is_empty() {
                    schema["description"] = text(field.description);
                }
                properties.insert(field.name.to_owned(), schema);
            }
        }
        let names = names.into_values().filter(|(_, names)| !names.is_empty());
        let patterns: Map<_, _> =
            names.map(|(schema, names)| (format!("^({})$", names.join("|")), schema)).collect();
        let mut schema =
            json!({ "type": "object", "additionalProperties": true, "patternProperties": patterns });
        if is_described {
            let fields = object.fields.iter().filter(|field| field.has_two_spellings());
            let both = fields.map(|field| json!({ "required": [field.name, field.json_name] }));
            schema["not"] = json!({ "anyOf": both.collect::<Vec<_>>() });
            schema["description"] = text(object.description);
            schema["properties"] = properties.into();
        }
        schema
    }

    fn field(&mut self, field: &Field) -> Value {
        let mut schema = self.rule(field.rule);
        if field.is_repeated {
            let list = json!({ "type": "array", "items": schema });
            schema = json!({ "anyOf": [schema, list] });
        }
        if field.is_required() { schema } else { or_null(schema) }
    }

    fn rule(&mut self, rule: Rule) -> Value {
        match rule {
            Rule::Object(object) if self.is_complete || !object.description.is_empty() => {
                let reference = self.reference(object.name, |schemas| schemas.object(object));
                json!({ "anyOf": [reference, empty_list()] })
            }
            Rule::Object(_) | Rule::OpenObject => {
                json!({ "anyOf": [{ "type": "object", "additionalProperties": true }, empty_list()] })
            }
            Rule::Text(rule @ (TextRule::EventTime | TextRule::Time)) => {
                self.reference("UdmTime", |_| rule.or_instant())
            }
            Rule::Text(rule @ TextRule::Duration) => self.reference("UdmDuration", |_| rule.or_instant()),
            Rule::Text(rule) => rule.schema(),
            Rule::Integer(integer) => integer.schema(),
            Rule::Number => json!({
                "type": ["number", "string"],
                "pattern": r"^(-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?|NaN|-?Infinity)$",
            }),
            Rule::Boolean => json!({ "type": "boolean" }),
            Rule::Enumeration => {
                json!({ "type": ["string", "integer"], "minimum": i32::MIN, "maximum": i32::MAX })
            }
            Rule::Any => json!({}),
        }
    }

    /// Returns a reference to a schema, and adds the schema to the definitions.
    fn reference(&mut self, name: &str, schema: impl FnOnce(&mut Self) -> Value) -> Value {
        if !self.definitions.contains_key(name) {
            // An object can contain itself.
            self.definitions.insert(name.to_owned(), Value::Null);
            let schema = schema(self);
            self.definitions.insert(name.to_owned(), schema);
        }
        json!({ "$ref": format!("#{}/{name}", self.path) })
    }
}

/// An empty list counts as an absent object.
fn empty_list() -> Value {
    json!({ "type": "array", "items": {}, "maxItems": 0 })
}

/// Returns the text of a documentation comment.
fn text(lines: &str) -> Value {
    lines.lines().map(str::trim).collect::<Vec<_>>().join("\n").into()
}

/// Returns the schema of an optional value. `null` counts as absent.
fn or_null(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(names)) => names.push("null".into()),
        Some(name) => *name = json!([name, "null"]),
        None => match schema.get_mut("anyOf") {
            Some(Value::Array(schemas)) => schemas.push(json!({ "type": "null" })),
            _ => return json!({ "anyOf": [schema, { "type": "null" }] }),
        },
    }
    schema
}

impl Integer {
    fn schema(self) -> Value {
        let range = self.range();
        // The bounds are those of types with at most 64 bits.
        let bound = |bound: i128| i64::try_from(bound).map_or_else(|_| json!(u64::MAX), Value::from);
        json!({
            "type": ["integer", "string"],
            "minimum": bound(*range.start()),
            "maximum": bound(*range.end()),
            "pattern": if *range.start() < 0 { r"^-?[0-9]{1,20}(\.0+)?$" } else { r"^(-0+|[0-9]{1,20})(\.0+)?$" },
        })
    }
}

impl TextRule {
    fn or_instant(self) -> Value {
        let has =
            |name: &str| json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } });
        let object = json!({
            "type": "object",
            "properties": {
                "seconds": or_null(Integer::Seconds.schema()),
                "nanos": or_null(Integer::Nanos.schema()),
            },
            "anyOf": [has("seconds"), has("nanos")],
        });
        json!({ "anyOf": [self.schema(), object] })
    }

    fn schema(self) -> Value {
        let mut schema = match self {
            Self::Any | Self::MetadataId => json!({}),
            Self::SourceId => json!({
                "minLength": 1,
                "maxLength": MAX_SOURCE_ID_BYTES,
                "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
            }),
            Self::EventId => {
                json!({ "pattern": format!(r"^[A-Za-z0-9._:/+=\-]{{1,{MAX_EVENT_ID_BYTES}}}$") })
            }
            Self::EventType => json!({
                "type": ["string", "integer"],
                "pattern": format!(r"^([A-Z][A-Z0-9_]{{0,{}}}|[0-9]+(\.0+)?)$", MAX_TYPE_BYTES - 1),
                "minimum": 0,
                "maximum": 100_000,
            }),
            Self::EventTime | Self::Time => json!({
                "format": "date-time",
                "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:]{8}(\.[0-9]{1,9})?([Zz]|[+\-][0-9:]{5})$",
            }),
            Self::Duration => json!({ "pattern": r"^-?[0-9]{1,12}(\.[0-9]{1,9})?s$" }),
            Self::Bytes => {
                let alphabets = [r"[A-Za-z0-9+/]", r"[A-Za-z0-9_\-]"]
                    .map(|digit| format!("({digit}{{4}})*({digit}{{2}}(==)?|{digit}{{3}}=?)?"));
                json!({ "pattern": format!("^({})$", alphabets.join("|")) })
            }
            // JSON Schema has no format that includes both kinds of addresses, and none with a zone.
            Self::IpAddress => json!({
                "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }, { "pattern": r"^[0-9A-Fa-f:.]+%[!-$&-~]{1,64}$" }],
            }),
            Self::MacAddress => {
                let groups = [":", "-", r"\."].map(|separator| {
                    format!("H{{2}}({separator}H{{2}}){{5}}(({separator}H{{2}}){{2}})?|H{{4}}({separator}H{{4}}){{2,3}}")
                });
                json!({ "pattern": format!("^({})$", groups.join("|")).replace('H', "[0-9A-Fa-f]") })
            }
        };
        if schema["type"].is_null() {
            schema["type"] = "string".into();
        }
        schema
    }
}
