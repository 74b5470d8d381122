//! `svc doctor`: checks settings, stored logins, the connection and the credential, in the order in which they depend on each
//! other. Each result names what to type.

mod checks;
mod connection;

use clap::Args;
use contract::{Scope, routes};
use schemars::JsonSchema;
use serde::Serialize;

use crate::framework::arguments::enum_parser;
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table};

/// Columns before the messages.
const INDENT: usize = 25;

/// Find out why commands fail.
///
/// Checks settings, stored logins, the connection, the proxy, the clock, the versions, the credential, its tenant and its scopes,
/// and prints what to do about each problem. Changes nothing.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Check that the credential has this scope; repeatable.
    #[arg(long, value_parser = enum_parser::<Scope>(Scope::ALL.iter().map(|it| it.as_str())))]
    scope: Vec<Scope>,
}

/// Result of all checks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Diagnosis {
    /// Whether no check failed.
    healthy: bool,
    /// Checks in the order in which they depend on each other: correct the first failed one first.
    checks: Vec<CheckResult>,
    #[serde(skip)]
    first_error: Option<CliError>,
}

/// Result of one check.
#[derive(Serialize, JsonSchema)]
struct CheckResult {
    /// Subject of the check.
    check: Check,
    /// Result.
    status: CheckStatus,
    /// Finding.
    message: String,
    /// What to do about it.
    remediation: Option<String>,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Check {
    /// Context, base URL and CA file.
    Configuration,
    /// The stored sessions.
    Logins,
    /// The connection to the service.
    Connection,
    /// The proxy in effect.
    Proxy,
    /// The clock of this machine.
    Clock,
    /// Client and server belong to the same release.
    Version,
    /// The session or API key that commands use.
    Credential,
    /// The tenant of the credential.
    Tenant,
    /// The scopes of the credential.
    Scopes,
    /// The platform token of the environment.
    PlatformToken,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    /// Nothing to do.
    Ok,
    /// Commands work, but something is unusual.
    Warning,
    /// Commands fail.
    Failed,
    /// Not possible after the failure of an earlier check.
    Skipped,
}

/// What a check that did not fail has found.
enum Finding {
    Ok(String),
    /// Message and what to do about it.
    Warning(String, String),
    /// Reason.
    Skipped(&'static str),
}

impl Diagnosis {
    fn add(&mut self, check: Check, finding: Result<Finding>) {
        let (status, message, remediation) = match finding {
            Ok(Finding::Ok(message)) => (CheckStatus::Ok, message, None),
            Ok(Finding::Warning(message, remediation)) => (CheckStatus::Warning, message, Some(remediation)),
            Ok(Finding::Skipped(reason)) => (CheckStatus::Skipped, reason.to_owned(), None),
            Err(error) => {
                self.healthy = false;
                let (message, remediation) = (error.message.clone(), error.remediation.clone());
                self.first_error.get_or_insert(error);
                (CheckStatus::Failed, message, Some(remediation))
            }
        };
        self.checks.push(CheckResult { check, status, message, remediation });
    }
}

/// Name of a value in JSON.
fn name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

impl CommandOutput for Diagnosis {
    fn table(&self) -> Table {
        let lines = self.checks.iter().map(|CheckResult { check, status, message, remediation }| {
            let message = message.replace("\n  ", "; ");
            let advice = remediation.as_ref().map(|text| format!("{:INDENT$}what to do: {text}\n", ""));
            format!("{:8} {:15} {message}\n{}", name(status), name(check), advice.unwrap_or_default())
        });
        Table::paragraphs(&lines.collect::<String>(), INDENT)
    }

    /// The error of the first failed check, with the names of all failed checks.
    fn error(&self) -> Option<CliError> {
        let error = self.first_error.clone()?;
        let failed = self.checks.iter().filter(|result| result.status == CheckStatus::Failed);
        let names: Vec<_> = failed.map(|result| name(result.check)).collect();
        let message = format!("failed checks: {}\n  {}", names.join(", "), error.message);
        Some(CliError { message, ..error })
    }
}

impl Command for Doctor {
    type Output = Diagnosis;

    const REQUIRES: Requirement = Requirement::CredentialOrPlatformToken;
    const ROUTES: Routes =
        Routes::Only(&[&routes::GET_VERSION, &routes::WHOAMI, &routes::LIST_TENANTS, &routes::GET_TENANT]);
    const ERRORS: Errors = &[ErrorKind::ScopeMissing];
    const EXAMPLES: Examples = &[
        ("Check everything that commands need", "svc doctor"),
        ("Check that events can be sent", "svc doctor --scope events:write --output json"),
    ];
    const AGENT_NOTES: &'static str = "Run it first when a command fails. Always prints all checks to stdout. Exit \
        status 0 means that no check failed; else code, exit status and remediation are those of the first \
        failed check.";
    const SEE_ALSO: Names = &["config list", "auth status", "auth whoami", "version"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        Ok(checks::run(context, &self.scope).await)
    }
}
