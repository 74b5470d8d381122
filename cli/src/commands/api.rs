//! `svc api`: requests to any route of the HTTP API.

use clap::Args;
use contract::API_PREFIX;
use reqwest::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::framework::api::ApiResponse;
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes, SchemaOf};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::credential::Credential;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::input::read_stdin;
use crate::framework::output::{CommandOutput, Table};

/// Send a request to the HTTP API.
///
/// Prints the body of the response. The path is relative to /api/v1 and may contain a query.
#[derive(Args)]
pub(crate) struct ApiCommand {
    /// HTTP method.
    #[arg(value_name = "METHOD", value_parser = parse_method)]
    method: Method,
    /// Path, such as /auth/session. The first slash may be omitted.
    #[arg(value_name = "PATH")]
    path: String,
    /// JSON body, or `-` to read it from standard input.
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
    /// Use the platform token in `SVC_PLATFORM_TOKEN`.
    #[arg(long, conflicts_with = "anonymous")]
    platform_admin: bool,
    /// Send no credential.
    #[arg(long)]
    anonymous: bool,
}

/// Body of a response; JSON keeps its bytes.
pub(crate) enum ResponseBody {
    Json(Box<RawValue>),
    Text(String),
    Empty,
}

impl From<&ApiResponse> for ResponseBody {
    fn from(response: &ApiResponse) -> Self {
        let text = String::from_utf8_lossy(response.body());
        match serde_json::from_slice(response.body()) {
            Ok(json) => Self::Json(json),
            Err(_) if text.is_empty() => Self::Empty,
            Err(_) => Self::Text(text.into_owned()),
        }
    }
}

impl Serialize for ResponseBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Json(json) => json.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Empty => serializer.serialize_unit(),
        }
    }
}

impl JsonSchema for ResponseBody {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ResponseBody".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Body of the response: JSON unchanged, other text as a string, an empty body as null."})
    }
}

impl CommandOutput for ResponseBody {
    fn table(&self) -> Table {
        match self {
            Self::Json(json) => match serde_json::from_str::<serde_json::Value>(json.get()) {
                Ok(value) => Table::text(&format!("{value:#}")),
                Err(_) => Table::text(json.get()),
            },
            Self::Text(text) => Table::text(text),
            Self::Empty => Table::empty(),
        }
    }
}

impl Command for ApiCommand {
    type Output = ResponseBody;

    const REQUIRES: Requirement = Requirement::Credential;
    const ROUTES: Routes = Routes::Any;
    const ERRORS: Errors = &[ErrorKind::InputUnreadable, ErrorKind::PlatformTokenMissing];
    const EXAMPLES: Examples = &[
        ("Show the current session", "svc api GET /auth/session"),
        ("List tenants as the platform administrator", "svc api GET /tenants --platform-admin"),
        ("Read the body from standard input", "svc api POST /events --data - < event.json"),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> =
        Some("Check with a GET request whether the request had its effect, before you send it again.");
    const AGENT_NOTES: &'static str = "For routes that no other command covers. May change data, depending \
        on method and path. The client does not validate path and body.";
    const SEE_ALSO: Names = &["auth whoami", "events send"];
    const INPUT_SCHEMA: Option<SchemaOf> =
        Some(|| json!({"description": "For `--data -`: the body of the request, any JSON."}));

    async fn run(self, context: &Context) -> Result<Self::Output> {
        if self.path.starts_with("http:") || self.path.starts_with("https:") {
            let error = ErrorKind::Usage.with_message("PATH must be a path such as /auth/session, not a URL");
            return Err(
                error.with_remediation("Pass the address of the service as --base-url (SVC_BASE_URL).")
            );
        }
        let path = format!("/{}", self.path.strip_prefix('/').unwrap_or(&self.path));
        let path = path.strip_prefix(API_PREFIX).unwrap_or(&path);
        let mut api = context.api()?;
        if !self.anonymous {
            let requirement =
                if self.platform_admin { Requirement::PlatformToken } else { Requirement::Credential };
            api = api.with_credential(Credential { tenant: None, ..context.credential(requirement)? })?;
        }
        let mut call = api.call_path(self.method, path).tenant(context.tenant_option());
        if let Some(data) = self.data {
            call = call.body(if data == "-" { read_stdin().await? } else { data.into_bytes() });
        }
        Ok(ResponseBody::from(&call.send_any().await?.error_for_raw_status()?))
    }
}

fn parse_method(text: &str) -> std::result::Result<Method, String> {
    text.to_ascii_uppercase().parse().map_err(|_| "expected an HTTP method such as GET".to_owned())
}
