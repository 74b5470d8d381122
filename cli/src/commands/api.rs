//! `svc api`

use std::io::Read;

use clap::Args;
use contract::{API_PREFIX, ProblemKind};
use reqwest::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::api::Answer;
use crate::blocking::blocking;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Report, Table};

/// Call the HTTP API directly, with the credential at hand.
///
/// Prints the body of the answer. The path stands below /api/v1, and may carry a query.
#[derive(Args)]
pub(crate) struct Api {
    /// HTTP method, as GET or POST.
    #[arg(value_name = "METHOD", value_parser = method)]
    method: Method,
    /// Path, as /auth/session.
    #[arg(value_name = "PATH")]
    path: String,
    /// JSON body, sent as it is; `-` reads it from standard input.
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
    /// Act as the operator, with the token in `SVC_PLATFORM_TOKEN`.
    #[arg(long, conflicts_with = "anonymous")]
    operator: bool,
    /// Send no credential.
    #[arg(long)]
    anonymous: bool,
}

/// The body of an answer, with the bytes that it came in.
enum Body {
    Json(Box<RawValue>),
    Text(String),
    Nothing,
}

impl Body {
    fn of(answer: &Answer) -> Self {
        let text = String::from_utf8_lossy(answer.body());
        match serde_json::from_slice(answer.body()) {
            Ok(json) => Self::Json(json),
            Err(_) if text.is_empty() => Self::Nothing,
            Err(_) => Self::Text(text.into_owned()),
        }
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Json(json) => json.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Nothing => serializer.serialize_unit(),
        }
    }
}

impl JsonSchema for Body {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Body".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "The body of the answer: JSON as it is, other text as a string, nothing as null."})
    }
}

impl Report for Body {
    fn table(&self) -> Table {
        match self {
            Self::Json(json) => match serde_json::from_str::<serde_json::Value>(json.get()) {
                Ok(value) => Table::of_text(&format!("{value:#}")),
                Err(_) => Table::of_text(json.get()),
            },
            Self::Text(text) => Table::of_text(text),
            Self::Nothing => Table::nothing(),
        }
    }
}

impl Command for Api {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Tools,
            access: Access::Caller,
            examples: &[
                ("Ask who the credential is", "svc api GET /auth/session"),
                ("List tenants as the operator", "svc api GET /tenants --operator"),
                ("Send a body from standard input", "svc api POST /events --data -"),
            ],
            agent_notes: "For what no other command does; prefer the command where there is one. It changes whatever the \
                          method and path change. The path is not checked here.",
            see_also: &["auth whoami", "events send"],
            errors: ANY_PROBLEM,
            input_schema: None,
            output_schema: Some(schema_of::<Body>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        if !self.path.starts_with('/') {
            return Err(Fault::Usage.because("the path begins with a slash, as /auth/session"));
        }
        let path = self.path.strip_prefix(API_PREFIX).unwrap_or(&self.path);
        let api = context.api()?;
        let mut call = api.call(self.method, path).tenant(context.named_tenant());
        if !self.anonymous {
            let caller = if self.operator { context.operator()? } else { context.caller()? };
            call = call.bearer(&caller.bearer)?;
        }
        if let Some(data) = self.data {
            call = call.body(if data == "-" { stdin().await? } else { data.into_bytes() });
        }
        context.out().print(&Body::of(&call.send().await?))
    }
}

/// Any path may be called, so any problem may be the answer.
const ANY_PROBLEM: &[Failure] = &{
    const LOCAL: [Failure; 2] =
        [Failure::Local(Fault::InputUnreadable), Failure::Local(Fault::PlatformTokenMissing)];
    let mut all = [LOCAL[0]; LOCAL.len() + ProblemKind::ALL.len()];
    all[1] = LOCAL[1];
    let mut place = 0;
    while place < ProblemKind::ALL.len() {
        all[LOCAL.len() + place] = Failure::Api(ProblemKind::ALL[place]);
        place += 1;
    }
    all
};

fn method(text: &str) -> std::result::Result<Method, String> {
    text.to_ascii_uppercase().parse().map_err(|_| "a method is a word, as GET".to_owned())
}

async fn stdin() -> Result<Vec<u8>> {
    blocking(|| {
        let mut body = Vec::new();
        match std::io::stdin().lock().read_to_end(&mut body) {
            Ok(_) => Ok(body),
            Err(error) => Err(Fault::InputUnreadable.because(format!("standard input: {error}"))),
        }
    })
    .await
}
