//! `svc api`: requests to any route of the HTTP API.

use std::borrow::Cow;

use clap::Args;
use contract::API_PREFIX;
use reqwest::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes, SchemaOf};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::credential::{self, Credential};
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::input::read_stdin;
use crate::framework::output::{CommandOutput, Table};

/// Send a request to the HTTP API.
///
/// Prints the body of the response. The path is relative to /api/v1 and may contain a query.
#[derive(Args)]
pub(crate) struct ApiCommand {
    /// HTTP method.
    #[arg(value_parser = parse_method)]
    method: Method,
    /// Path, such as /auth/session. The first slash may be omitted.
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

/// Body of a response.
pub(crate) struct ResponseBody {
    text: String,
    /// Whether the method of the request has no effect.
    is_read: bool,
}

impl JsonSchema for ResponseBody {
    fn schema_name() -> Cow<'static, str> {
        "ResponseBody".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Body of the response: JSON unchanged, other text as a string, an empty body as null.",
        })
    }
}

impl Serialize for ResponseBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(&self.text) {
            Ok(json) => json.serialize(serializer),
            Err(_) if self.text.is_empty() => serializer.serialize_unit(),
            Err(_) => serializer.serialize_str(&self.text),
        }
    }
}

impl CommandOutput for ResponseBody {
    fn table(&self) -> Table {
        match serde_json::from_str::<serde_json::Value>(&self.text) {
            Ok(value) => Table::text(&format!("{value:#}")),
            Err(_) => Table::text(&self.text),
        }
    }

    fn is_read(&self) -> bool {
        self.is_read
    }
}

impl Command for ApiCommand {
    type Output = ResponseBody;

    const ROUTES: Routes = Routes::Any;
    const ERRORS: Errors = &[ErrorKind::InputUnreadable, ErrorKind::PlatformTokenMissing];
    const EXAMPLES: Examples = &[
        ("Show the current session", "svc api GET /auth/session"),
        ("List tenants as the platform administrator", "svc api GET /tenants --platform-admin"),
        ("Read the body from standard input", "svc api POST /events --data - < event.json"),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> =
        Some("Check with a GET request whether the request had its effect, before you send it again.");
    const AGENT_NOTES: &'static str = "For routes that no other command covers. Sends the platform token only with \
        --platform-admin. The client does not validate path and body.";
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
            let credential = context.credential(requirement).map_err(with_platform_admin)?;
            api = api.with_credential(Credential { tenant: None, ..credential })?;
        }
        let is_read = self.method.is_safe();
        let mut call = api.call_path(self.method, path).tenant(context.tenant_option());
        if let Some(data) = self.data {
            let is_piped = data == "-";
            call = call.body(if is_piped {
                read_stdin("body", context.out()).await?
            } else {
                data.into_bytes()
            });
        }
        let response = call.send_any().await?.error_for_raw_status()?;
        Ok(ResponseBody { text: String::from_utf8_lossy(response.body()).into_owned(), is_read })
    }
}

/// Names the option for the platform token if there is no other credential.
fn with_platform_admin(error: CliError) -> CliError {
    if error.code != ErrorKind::NotLoggedIn.code() || !credential::is_platform_token_set() {
        return error;
    }
    let remediation = format!("Pass --platform-admin to use the platform token. {}", error.remediation);
    error.with_remediation(remediation)
}

fn parse_method(text: &str) -> std::result::Result<Method, String> {
    text.to_ascii_uppercase().parse().map_err(|_| "expected an HTTP method such as GET".to_owned())
}
