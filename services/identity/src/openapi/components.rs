//! What operations refer to: types, and answers that many share. Types that are taken and types that are given differ where
//! a field may be left out of a request but stands in every answer.

use contract::routes::SchemaRef;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// Collects it.
pub(super) struct Components {
    taken: SchemaGenerator,
    given: SchemaGenerator,
    responses: Map<String, Value>,
}

/// A field of a type.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) about: String,
    pub(super) schema: Value,
}

impl Default for Components {
    fn default() -> Self {
        Self {
            taken: settings().for_deserialize().into_generator(),
            given: settings().for_serialize().into_generator(),
            responses: Map::new(),
        }
    }
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.transforms.push(Box::new(RecursiveTransform(words_in_one_list)));
    })
}

impl Components {
    /// A type as requests hold it.
    pub(super) fn taken(&mut self, of: SchemaRef) -> Value {
        of.schema(&mut self.taken).to_value()
    }

    /// The same for a type that the table does not name.
    pub(super) fn taken_as<T: JsonSchema>(&mut self) -> Value {
        self.taken(SchemaRef::of::<T>())
    }

    /// A type as answers hold it.
    pub(super) fn given(&mut self, of: SchemaRef) -> Value {
        of.schema(&mut self.given).to_value()
    }

    /// The same for a type that the table does not name.
    pub(super) fn given_as<T: JsonSchema>(&mut self) -> Value {
        self.given(SchemaRef::of::<T>())
    }

    /// Keeps a response under a name; returns a reference to it.
    pub(super) fn keep_response(&mut self, name: &str, response: Value) -> Value {
        self.responses.insert(name.to_owned(), response);
        json!({ "$ref": format!("#/components/responses/{name}") })
    }

    /// Everything that was referred to. Of a type that is both taken and given, what is taken says less, and so holds for
    /// both.
    pub(super) fn finish(mut self) -> Value {
        let mut schemas = self.given.take_definitions(true);
        schemas.extend(self.taken.take_definitions(true));
        json!({ "schemas": schemas, "responses": self.responses })
    }

    /// The fields of a type whose fields are query parameters.
    pub(super) fn fields(of: SchemaRef) -> impl Iterator<Item = Field> {
        let mut generator = settings().with(|settings| settings.inline_subschemas = true).into_generator();
        let mut schema = of.schema(&mut generator);
        for transform in generator.transforms_mut() {
            transform.transform(&mut schema);
        }
        let mut schema = schema.to_value();
        let required = schema["required"].take();
        let fields = match schema["properties"].take() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.into_iter().map(move |(name, mut schema)| {
            let required = required.as_array().is_some_and(|names| names.contains(&json!(name)));
            let about = schema["description"].take().as_str().unwrap_or_default().to_owned();
            Field { name, required, about, schema: without_null(schema) }
        })
    }
}

/// A parameter is left out rather than null.
fn without_null(mut schema: Value) -> Value {
    schema.as_object_mut().map(|schema| schema.remove("description"));
    if let Some(types) = schema["type"].as_array() {
        let other = types.iter().find(|kind| *kind != "null").cloned();
        schema["type"] = other.unwrap_or_default();
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().find(|choice| choice["type"] != "null").cloned().unwrap_or_default();
    }
    schema
}

/// Writes `oneOf` with a constant each as one `enum`, which is what makers of clients understand; the meaning of each word
/// moves into the description.
fn words_in_one_list(schema: &mut Schema) {
    let Some(choices) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let words: Option<Vec<_>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    let Some(words) = words else {
        return;
    };
    let meanings = choices.iter().map(|choice| {
        let (word, about) = (choice["const"].as_str(), choice["description"].as_str());
        format!("- `{}`: {}", word.unwrap_or_default(), about.unwrap_or_default())
    });
    let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let about = format!("{about}\n\n{}", meanings.collect::<Vec<_>>().join("\n"));
    schema.remove("oneOf");
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), words.into());
    schema.insert("description".into(), about.into());
}
