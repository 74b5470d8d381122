//! Parts that operations refer to: schemas, parameters, headers, security schemes and shared responses.
//!
//! Requests and responses have separate schemas, because a field that is optional in a request can be required in a
//! response.

use contract::routes::{Header, SchemaRef};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use tenancy::TenantId;

/// End of the name of a closed copy.
const COPY: &str = "Request";
const UUID: &str = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$";

/// Collects the components while operations are generated.
pub(crate) struct Components {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
    shared_responses: Map<String, Value>,
}

/// A query parameter.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) required: bool,
    pub(crate) description: String,
    pub(crate) schema: Value,
}

impl Default for Components {
    fn default() -> Self {
        Self {
            requests: settings().for_deserialize().into_generator(),
            responses: settings().for_serialize().into_generator(),
            shared_responses: Map::new(),
        }
    }
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.transforms.push(Box::new(RecursiveTransform(merge_constants)));
    })
}

impl Components {
    /// Returns the schema of a type in requests.
    pub(crate) fn request_schema(&mut self, of: SchemaRef) -> Value {
        of.schema(&mut self.requests).to_value()
    }

    /// Returns the schema in requests of a type that the route table does not name.
    pub(crate) fn request_schema_of<T: JsonSchema>(&mut self) -> Value {
        self.request_schema(SchemaRef::new::<T>())
    }

    /// Returns the schema of a type in responses.
    pub(crate) fn response_schema(&mut self, of: SchemaRef) -> Value {
        of.schema(&mut self.responses).to_value()
    }

    /// Returns the schema in responses of a type that the route table does not name.
    pub(crate) fn response_schema_of<T: JsonSchema>(&mut self) -> Value {
        self.response_schema(SchemaRef::new::<T>())
    }

    /// Stores a response under a name and returns a reference to it.
    pub(crate) fn share_response(&mut self, name: &str, response: Value) -> Value {
        self.shared_responses.insert(name.to_owned(), response);
        json!({ "$ref": format!("#/components/responses/{name}") })
    }

    /// Returns all components. For a type in both requests and responses, the request schema is used: it is less strict,
    /// so it is correct for both. A response can have further fields later and a request cannot, so requests have a closed copy.
    pub(crate) fn finish(mut self) -> Value {
        let parameters = self.parameters();
        let mut schemas = self.responses.take_definitions(true);
        let requests = self.requests.take_definitions(true);
        let shared = requests.iter().filter(|(name, schema)| schemas.contains_key(*name) && is_open(schema));
        let copied: Vec<_> = shared.map(|(name, _)| name.clone()).collect();
        for (mut name, mut schema) in requests {
            if copied.contains(&name) {
                schemas.insert(name.clone(), schema.clone());
                name.push_str(COPY);
            }
            if is_open(&schema) {
                schema["additionalProperties"] = Value::Bool(false);
                refer_to_copies(&mut schema, &copied);
            }
            schemas.insert(name, schema);
        }
        json!({
            "schemas": schemas,
            "responses": self.shared_responses,
            "parameters": parameters,
            "headers": headers(),
            "securitySchemes": security_schemes(),
        })
    }

    /// The request headers, by the names of [`header_parameter`].
    fn parameters(&mut self) -> Value {
        let tenant = self.request_schema_of::<TenantId>();
        let tenant = |required: bool, text: &str| {
            let (name, place) = ("X-Tenant-ID", "header");
            json!({ "name": name, "in": place, "required": required, "schema": tenant, "description": text })
        };
        json!({
            "TenantId": tenant(true, "The tenant that the request is about."),
            "TenantOrField": tenant(
                false,
                "The tenant that the request is about. Required unless the body contains `tenant_id`.",
            ),
            "TenantOfPlatformAdmin": tenant(
                false,
                "The tenant that the request is about. Required from the platform administrator; for other callers the \
                    credential determines the tenant.",
            ),
            "OptionalTenant": tenant(false, "The tenant that the credential must belong to."),
            "UserId": {
                "name": "X-User-ID", "in": "header", "required": true,
                // Without the format `uuid`: generated clients would pass an object where their HTTP library expects text.
                "schema": { "type": "string", "pattern": UUID },
                "description": "The user that the request is about, a UUID.",
            },
            "SessionToken": {
                "name": "X-Session-ID", "in": "header", "required": true,
                "schema": { "type": "string", "format": "password" },
                "description": "The raw session token (`svc_st_…`) of the session to revoke.",
            },
        })
    }

    /// Returns the query parameters that a type contains as fields.
    pub(crate) fn fields(of: SchemaRef) -> impl Iterator<Item = Field> {
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
            let description = schema["description"].take().as_str().unwrap_or_default().to_owned();
            Field { name, required, description, schema: without_null(schema) }
        })
    }
}

/// Returns whether an object can have further fields.
fn is_open(schema: &Value) -> bool {
    schema.get("properties").is_some() && schema.get("additionalProperties").is_none()
}

/// Replaces the references to schemas that have a closed copy.
fn refer_to_copies(schema: &mut Value, copied: &[String]) {
    if let Some(Value::String(target)) = schema.get_mut("$ref") {
        let name = target.strip_prefix("#/components/schemas/");
        if name.is_some_and(|name| copied.iter().any(|copy| copy == name)) {
            target.push_str(COPY);
        }
    }
    match schema {
        Value::Object(parts) => parts.values_mut().for_each(|part| refer_to_copies(part, copied)),
        Value::Array(parts) => parts.iter_mut().for_each(|part| refer_to_copies(part, copied)),
        _ => {}
    }
}

/// Returns the name of a request header in the components.
pub(crate) fn header_parameter(header: Header) -> &'static str {
    match header {
        Header::Tenant => "TenantId",
        Header::TenantOrField => "TenantOrField",
        Header::TenantOfPlatformAdmin => "TenantOfPlatformAdmin",
        Header::OptionalTenant => "OptionalTenant",
        Header::User => "UserId",
        Header::Session => "SessionToken",
    }
}

/// The response headers.
fn headers() -> Value {
    json!({
        "RequestId": {
            "required": true, "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$" },
            "description": "Identifies the request in the logs: the `X-Request-Id` of the request if it is valid, else a \
                generated id.",
        },
        "RetryAfter": {
            "schema": { "type": "integer", "minimum": 1 },
            "description": "Seconds to wait before the request is repeated.",
        },
        "Challenge": {
            "required": true, "schema": { "type": "string", "pattern": "^Bearer( error=\"[a-z_]+\")?$" },
            "description": "Authentication scheme, and the error of the credential (RFC 6750).",
        },
        "ETag": {
            "required": true, "schema": { "type": "string" },
            "description": "Version of the document, for `If-None-Match`.",
        },
    })
}

/// The bearer credentials.
fn security_schemes() -> Value {
    let bearer = |format: &str, text: &str| {
        let (kind, scheme) = ("http", "bearer");
        json!({ "type": kind, "scheme": scheme, "bearerFormat": format, "description": text })
    };
    json!({
        "session": bearer("svc_st_…", "The session token of a user: `session_id` in the login response. Routes that list \
            `admin` require an administrator."),
        "api_key": bearer("svc_ak_…", "An API key of a tenant, with the listed scope."),
        "platform": bearer("svc_pt_…", "The token of the platform administrator, `SVC_PLATFORM_TOKEN` of the installation."),
    })
}

/// Removes `null`: an absent parameter is omitted.
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

/// Replaces `oneOf` of constants by one `enum`, which client generators support better. The descriptions of the constants
/// become part of the description of the type.
fn merge_constants(schema: &mut Schema) {
    let Some(choices) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let values: Option<Vec<_>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    let Some(values) = values else {
        return;
    };
    let descriptions = choices.iter().map(|choice| {
        let (value, description) = (choice["const"].as_str(), choice["description"].as_str());
        format!("- `{}`: {}", value.unwrap_or_default(), description.unwrap_or_default())
    });
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = format!("{description}\n\n{}", descriptions.collect::<Vec<_>>().join("\n"));
    schema.remove("oneOf");
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), values.into());
    schema.insert("description".into(), description.into());
}
