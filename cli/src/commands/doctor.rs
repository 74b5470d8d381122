//! `svc doctor`: checks settings, stored logins, the connection and the credential, in the order in which they depend on each
//! other. Each result names what to type.

mod checks;
mod connection;

use clap::Args;
use contract::{Scope, routes};
use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::enum_parser;
use crate::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{CliError, ErrorKind, Result};
use crate::output::{CommandOutput, Table};

/// Columns before the messages.
const INDENT: usize = 25;

/// Find out why commands fail.
///
/// Checks settings, stored logins, the connection, the proxy, the clock, the versions, the credential, its tenant and its scopes,
/// and prints what to do about each problem. Changes nothing.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Check that the credential has this scope; repeatable.
    #[arg(long, value_name = "SCOPE", value_parser = enum_parser::<Scope>(Scope::ALL.iter().map(|it| it.as_str())))]
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

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
        pub(crate) enum $name { $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

names! {
    /// What a check is about.
    Check {
        /// Context, base URL and CA file.
        Configuration = "configuration",
        /// The stored sessions.
        Logins = "logins",
        /// The connection to the service.
        Connection = "connection",
        /// The proxy in effect.
        Proxy = "proxy",
        /// The clock of this machine.
        Clock = "clock",
        /// Client and server belong to the same release.
        Version = "version",
        /// The session or API key that commands use.
        Credential = "credential",
        /// The tenant of the credential.
        Tenant = "tenant",
        /// The scopes of the credential.
        Scopes = "scopes",
        /// The platform token of the environment.
        PlatformToken = "platform_token",
    }
}

names! {
    /// Result of a check.
    CheckStatus {
        /// Nothing to do.
        Ok = "ok",
        /// Commands work, but something is unusual.
        Warning = "warning",
        /// Commands fail.
        Failed = "failed",
        /// Not possible after the failure of an earlier check.
        Skipped = "skipped",
    }
}

impl Diagnosis {
    const fn new() -> Self {
        Self { healthy: true, checks: Vec::new(), first_error: None }
    }

    fn add(
        &mut self,
        check: Check,
        status: CheckStatus,
        message: impl Into<String>,
        remediation: Option<String>,
    ) {
        self.checks.push(CheckResult { check, status, message: message.into(), remediation });
    }

    fn ok(&mut self, check: Check, message: impl Into<String>) {
        self.add(check, CheckStatus::Ok, message, None);
    }

    fn skip(&mut self, check: Check, reason: &str) {
        self.add(check, CheckStatus::Skipped, reason, None);
    }

    fn warn(&mut self, check: Check, message: impl Into<String>, remediation: impl Into<String>) {
        self.add(check, CheckStatus::Warning, message, Some(remediation.into()));
    }

    fn fail(&mut self, check: Check, error: CliError) {
        self.healthy = false;
        self.add(check, CheckStatus::Failed, error.message.clone(), Some(error.remediation.clone()));
        self.first_error.get_or_insert(error);
    }

    /// The error of the first failed check, with the names of all failed checks.
    fn into_result(self) -> Result<()> {
        let failed = self.checks.iter().filter(|result| result.status == CheckStatus::Failed);
        let names: Vec<_> = failed.map(|result| result.check.name()).collect();
        match self.first_error {
            None => Ok(()),
            Some(error) => {
                let message = format!("failed checks: {}\n  {}", names.join(", "), error.message);
                Err(CliError { message, ..error })
            }
        }
    }
}

impl CommandOutput for Diagnosis {
    fn table(&self) -> Table {
        let lines = self.checks.iter().map(|CheckResult { check, status, message, remediation }| {
            let message = message.replace("\n  ", "; ");
            let advice = remediation.as_ref().map(|text| format!("{:INDENT$}what to do: {text}\n", ""));
            format!("{:8} {:15} {message}\n{}", status.name(), check.name(), advice.unwrap_or_default())
        });
        Table::paragraphs(&lines.collect::<String>(), INDENT)
    }
}

impl Command for Doctor {
    type Output = Diagnosis;

    const REQUIRES: Requirement = Requirement::CredentialOrPlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::GET_VERSION, &routes::WHOAMI, &routes::LIST_TENANTS]);
    const ERRORS: Errors = &[ErrorKind::ScopeMissing];
    const EXAMPLES: Examples = &[
        ("Check everything that commands need", "svc doctor"),
        ("Check that events can be sent", "svc doctor --scope events:write --output json"),
    ];
    const AGENT_NOTES: &'static str = "Run it first when a command fails. Always prints all checks to stdout. Exit \
        status 0 means that no check failed; else code, exit status and remediation are those of the first \
        failed check.";
    const SEE_ALSO: Names = &["config list", "auth status", "auth whoami", "version"];

    async fn run(self, context: &Context) -> Result<()> {
        let mut diagnosis = Diagnosis::new();
        checks::run(context, &self.scope, &mut diagnosis).await;
        context.out().print(&diagnosis)?;
        diagnosis.into_result()
    }
}
