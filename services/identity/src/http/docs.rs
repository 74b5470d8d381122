//! `/docs`: the whole API on one page, made from the table of routes and the OpenAPI document. No script, and nothing is
//! loaded but our own style.

mod operation;
mod schema;

use std::sync::LazyLock;

use askama::Template;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::routes::GROUPS;
use pulldown_cmark::{Parser, html::push_html};
use serde_json::Value;
use service::Problem;

use super::pages::page;
use crate::openapi;
use operation::Operation;
use schema::TypeView;

static PAGE: LazyLock<Result<String, askama::Error>> =
    LazyLock::new(|| Docs::of(&openapi::document()).render());

/// `GET`: anybody.
pub(super) async fn read() -> Result<Response, Problem> {
    match &*PAGE {
        Ok(html) => Ok(page("text/html; charset=utf-8", html.as_str()).into_response()),
        Err(error) => Err(Problem::new(ProblemKind::Internal).caused_by(error.to_string())),
    }
}

/// What the page shows.
#[derive(Template)]
#[template(path = "docs.html")]
struct Docs {
    version: String,
    introduction: String,
    groups: Vec<Group>,
    types: Vec<TypeView>,
}

struct Group {
    name: &'static str,
    about: &'static str,
    operations: Vec<Operation>,
}

impl Docs {
    fn of(document: &Value) -> Self {
        let groups = GROUPS.iter().map(|group| Group {
            name: group.name,
            about: group.description,
            operations: group.routes.iter().map(|route| Operation::of(route, document)).collect(),
        });
        let types = document["components"]["schemas"].as_object().into_iter().flatten();
        Self {
            version: text(&document["info"]["version"]),
            introduction: markdown(&text(&document["info"]["description"])),
            groups: groups.collect(),
            types: types.map(|(name, schema)| TypeView::of(name, schema)).collect(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The words are our own: what they hold of HTML is meant.
fn markdown(text: &str) -> String {
    let mut html = String::new();
    push_html(&mut html, Parser::new(text));
    html
}
