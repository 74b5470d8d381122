//! Request and response bodies of a route.

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};

/// A wire type, referenced by its JSON Schema.
#[derive(Clone, Copy)]
pub struct SchemaRef(fn(&mut SchemaGenerator) -> Schema);

impl SchemaRef {
    /// Returns a reference to the schema of `T`.
    pub const fn of<T: JsonSchema>() -> Self {
        Self(SchemaGenerator::subschema_for::<T>)
    }

    /// Adds the schema to the generator and returns a reference to it.
    pub fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        (self.0)(generator)
    }
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum RequestBody {
    /// `application/json` of this type.
    Json(SchemaRef),
    /// `application/x-www-form-urlencoded` or `application/json` of this type. An invalid body gets 400 with an OAuth error.
    Form(SchemaRef),
    /// One UDM event as `application/json`. The type is defined in the `udm` crate.
    Event,
    /// Several UDM events: a list as `application/json`, or one event per line as `application/x-ndjson`.
    Events,
}

/// The body of a response.
#[derive(Clone, Copy)]
pub enum ResponseBody {
    /// No body.
    Empty,
    /// `application/json` of this type.
    Json(SchemaRef),
    /// A JSON document that is its own description, such as a JSON Schema.
    Document,
    /// HTML, or a style sheet or script of a page.
    Page,
}

/// A response that is not a problem document.
#[derive(Clone, Copy)]
pub struct RouteResponse {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: ResponseBody,
    /// Description for the OpenAPI document.
    pub description: &'static str,
}

impl RouteResponse {
    /// A status without a body.
    pub const fn empty(status: u16, description: &'static str) -> Self {
        Self { status, body: ResponseBody::Empty, description }
    }

    /// A status with a JSON body.
    pub const fn json<T: JsonSchema>(status: u16, description: &'static str) -> Self {
        Self { status, body: ResponseBody::Json(SchemaRef::of::<T>()), description }
    }

    /// 200 with a JSON document.
    pub const fn document(description: &'static str) -> Self {
        Self { status: 200, body: ResponseBody::Document, description }
    }

    /// 200 with a page.
    pub const fn page(description: &'static str) -> Self {
        Self { status: 200, body: ResponseBody::Page, description }
    }
}
