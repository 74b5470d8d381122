//! What goes over the wire, in both directions.

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};

/// A type of the wire, by its JSON Schema.
#[derive(Clone, Copy)]
pub struct Type(fn(&mut SchemaGenerator) -> Schema);

impl Type {
    /// This type.
    pub const fn of<T: JsonSchema>() -> Self {
        Self(SchemaGenerator::subschema_for::<T>)
    }

    /// A reference to its schema, which the generator keeps.
    pub fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        (self.0)(generator)
    }
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum Body {
    /// `application/json` of this type.
    Json(Type),
    /// `application/x-www-form-urlencoded` or `application/json` of this type. What is wrong with such a request is told in
    /// the words of OAuth, with 400.
    Form(Type),
    /// One UDM event as `application/json`. Its type is the `udm` crate's.
    Event,
    /// Several UDM events: a list as `application/json`, or a line each as `application/x-ndjson`.
    Events,
}

/// The body of an answer.
#[derive(Clone, Copy)]
pub enum Content {
    /// None.
    Nothing,
    /// `application/json` of this type.
    Json(Type),
    /// A JSON document that describes itself.
    Document,
    /// A page for people, or a part of one.
    Page,
}

/// An answer that is no problem.
#[derive(Clone, Copy)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub content: Content,
    /// What it says.
    pub about: &'static str,
}

impl Answer {
    /// A status without a body.
    pub const fn empty(status: u16, about: &'static str) -> Self {
        Self { status, content: Content::Nothing, about }
    }

    /// A status with JSON.
    pub const fn json<T: JsonSchema>(status: u16, about: &'static str) -> Self {
        Self { status, content: Content::Json(Type::of::<T>()), about }
    }

    /// 200 with a JSON document.
    pub const fn document(about: &'static str) -> Self {
        Self { status: 200, content: Content::Document, about }
    }

    /// 200 with a page.
    pub const fn page(about: &'static str) -> Self {
        Self { status: 200, content: Content::Page, about }
    }
}
