//! `svc auth switch`: the choice among the stored logins.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::TenantId;

use crate::commands::config::warn_about_overrides;
use crate::framework::catalog::{Errors, Examples, Names, Requirement};
use crate::framework::command::Command;
use crate::framework::configuration::{Configuration, ContextName};
use crate::framework::context::Context;
use crate::framework::credentials::{Credentials, StoredSession};
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::files::Directory;
use crate::framework::output::{CommandOutput, Table, escape_lines, text};
use crate::framework::terminal::print_line;

/// Switch to another stored login.
///
/// Makes its context the current one. The address, --context, --tenant and --base-url choose the login. Without them, switches
/// to the other login if there are two, and asks if there are more.
#[derive(Args)]
pub(crate) struct Switch {
    /// E-mail address of the login.
    email: Option<String>,
}

/// The login that commands use now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct CurrentLogin {
    /// Context.
    context: ContextName,
    /// Base URL of the service.
    #[schemars(with = "String")]
    base_url: BaseUrl,
    /// Tenant id.
    tenant_id: TenantId,
    /// E-mail address of the user.
    email: String,
}

impl CommandOutput for CurrentLogin {
    fn table(&self) -> Table {
        Table::fields([
            ("context", Some(text(&self.context))),
            ("service", Some(text(&self.base_url))),
            ("tenant", Some(text(&self.tenant_id))),
            ("email", Some(text(&self.email))),
        ])
    }
}

impl Command for Switch {
    type Output = CurrentLogin;

    const REQUIRES: Requirement = Requirement::CredentialsFile;
    const ERRORS: Errors = &[
        ErrorKind::NotLoggedIn,
        ErrorKind::InputNeeded,
        ErrorKind::InputInvalid,
        ErrorKind::InputUnreadable,
    ];
    const EXAMPLES: Examples = &[
        ("Switch to the login of another tenant", "svc auth switch --tenant umbrella"),
        ("Switch to another service", "svc auth switch --base-url https://svc.example.com"),
    ];
    const AGENT_NOTES: &'static str = "Works offline. Affects all later commands of the user; prefer \
        --tenant or --context for single commands.";
    const SEE_ALSO: Names = &["auth status", "auth login", "config use-context"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let mut logins = stored_logins(context)?;
        if let Some(email) = &self.email {
            logins.retain(|login| login.email.eq_ignore_ascii_case(email.trim()));
        }
        let current = context.configuration()?.current();
        let others: Vec<_> = logins.iter().filter(|login| Some(&login.context) != current).collect();
        let login = match (&logins[..], &others[..]) {
            ([], _) => {
                let which = if self.email.is_some() || is_filtered(context) {
                    "no stored login matches the address and options"
                } else {
                    "no login is stored"
                };
                return Err(ErrorKind::NotLoggedIn.with_message(which).with_remediation(
                    "Run `svc auth status` to list the stored logins, or `svc auth login`.",
                ));
            }
            ([only], _) => only,
            (_, [other]) => *other,
            _ => ask(context, &logins).await?,
        };
        let CurrentLogin { context: name, base_url, tenant_id, .. } = login;
        Directory::for_current_user()?.update(|configuration: &mut Configuration| {
            configuration.record_login(name, base_url, tenant_id, None);
            Ok(())
        })?;
        warn_about_overrides(context, name, Some(base_url), Some(tenant_id));
        super::warn_about_credentials(context);
        Ok(login.clone())
    }
}

/// Returns whether options choose the login.
fn is_filtered(context: &Context) -> bool {
    let globals = context.globals();
    ["base_url", "tenant", "context"].iter().any(|id| globals.is_given(id))
}

/// Stored logins that the options of the command line allow.
fn stored_logins(context: &Context) -> Result<Vec<CurrentLogin>> {
    let globals = context.globals();
    let service = globals.is_given("base_url").then(|| context.base_url()).transpose()?;
    let tenant = globals.is_given("tenant").then(|| context.tenant_option()).flatten();
    let name = globals.context.as_ref().filter(|_| globals.is_given("context"));
    let stored = Credentials::load()?;
    let allowed = stored.sessions.iter().filter(|(context, session)| {
        service.as_ref().is_none_or(|service| service.value == session.base_url)
            && tenant.is_none_or(|tenant| *tenant == session.tenant)
            && name.is_none_or(|name| name == *context)
    });
    let login = |(context, session): (&ContextName, &StoredSession)| {
        let StoredSession { base_url, tenant: tenant_id, email, .. } = session.clone();
        CurrentLogin { context: context.clone(), base_url, tenant_id, email }
    };
    Ok(allowed.map(login).collect())
}

/// Prompts for a number of the list.
async fn ask<'a>(context: &Context, logins: &'a [CurrentLogin]) -> Result<&'a CurrentLogin> {
    const OPTIONS: &str = "--context, --tenant or --base-url";
    context.prompt().require_available("login", OPTIONS)?;
    let lines = logins.iter().enumerate().map(|(index, login)| {
        let CurrentLogin { context, base_url, tenant_id, email } = login;
        format!("{:>3}  {email} in {tenant_id} at {base_url} ({context})", index + 1)
    });
    print_line(&escape_lines(&lines.collect::<Vec<_>>().join("\n")));
    let answer = context.prompt().line("Number of the login", OPTIONS).await?;
    let number: Option<usize> = answer.trim().parse().ok();
    number.and_then(|number| logins.get(number.checked_sub(1)?)).ok_or_else(|| {
        let message = format!("expected a number from 1 to {}", logins.len());
        ErrorKind::InputInvalid.with_message(message)
    })
}
