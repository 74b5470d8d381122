//! `svc auth switch`: the choice among the stored logins.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tenancy::TenantId;

use crate::commands::config::warn_about_overrides;
use crate::framework::catalog::{Errors, Examples, Names, Requirement};
use crate::framework::command::Command;
use crate::framework::configuration::{Configuration, ContextName};
use crate::framework::context::Context;
use crate::framework::credentials::Credentials;
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::files::Directory;
use crate::framework::output::{CommandOutput, Table, text};

/// Switch to another stored login.
///
/// Makes the context of its service and tenant the current one. --tenant and --base-url choose the login. Without them, switches
/// to the other login if there are two, and asks if there are more.
#[derive(Args)]
pub(crate) struct Switch {}

/// The login that commands use now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct CurrentLogin {
    /// Context.
    context: ContextName,
    /// Base URL of the service.
    base_url: String,
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
        let logins = stored_logins(context)?;
        let current = current_login(context)?;
        let others: Vec<_> = logins.iter().filter(|login| Some(&login.key()) != current.as_ref()).collect();
        let login = match (&logins[..], &others[..]) {
            ([], _) => {
                let which = if is_filtered(context) {
                    "no stored login matches the options"
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
        let (service, tenant) = login.key();
        let name = Directory::for_current_user()?.update(|configuration: &mut Configuration| {
            Ok(configuration.record_login(None, &service, &tenant, None))
        })?;
        warn_about_overrides(context);
        super::warn_about_credentials(context);
        Ok(CurrentLogin {
            context: name,
            base_url: service.to_string(),
            tenant_id: tenant,
            email: login.email.clone(),
        })
    }
}

/// A stored login.
struct StoredLogin {
    service: BaseUrl,
    tenant: TenantId,
    email: String,
}

impl StoredLogin {
    fn key(&self) -> (BaseUrl, TenantId) {
        (self.service.clone(), self.tenant.clone())
    }
}

/// Returns whether options choose the login.
fn is_filtered(context: &Context) -> bool {
    let globals = context.globals();
    ["base_url", "tenant", "context"].iter().any(|id| globals.is_given(id))
}

/// Stored logins that the options of the command line allow.
fn stored_logins(context: &Context) -> Result<Vec<StoredLogin>> {
    let globals = context.globals();
    let by_context = globals.is_given("context");
    let service =
        if globals.is_given("base_url") || by_context { Some(context.base_url()?.value) } else { None };
    let tenant = if globals.is_given("tenant") || by_context { context.tenant_setting()? } else { None };
    let stored = Credentials::load()?;
    let mut logins = Vec::new();
    for (url, id, session) in stored.all() {
        let login =
            StoredLogin { service: BaseUrl::parse(url)?, tenant: id.clone(), email: session.email.clone() };
        let is_allowed = service.as_ref().is_none_or(|service| *service == login.service)
            && tenant.as_ref().is_none_or(|tenant| tenant.value == login.tenant);
        if is_allowed {
            logins.push(login);
        }
    }
    Ok(logins)
}

/// Service and tenant of the current context.
fn current_login(context: &Context) -> Result<Option<(BaseUrl, TenantId)>> {
    let configuration = context.configuration()?;
    let Some(named) = configuration.current().map(|name| configuration.get(name)).transpose()? else {
        return Ok(None);
    };
    Ok(named.base_url.clone().zip(named.tenant.clone()))
}

/// Prompts for a number of the list.
async fn ask<'a>(context: &Context, logins: &'a [StoredLogin]) -> Result<&'a StoredLogin> {
    const OPTIONS: &str = "--tenant, --base-url or both";
    context.prompt().require_available("login", OPTIONS)?;
    let lines = logins.iter().enumerate().map(|(index, login)| {
        format!("{:>3}  {} in {} at {}", index + 1, login.email, login.tenant, login.service)
    });
    context.out().instruct(&lines.collect::<Vec<_>>().join("\n"), &json!({"logins": logins.len()}));
    let answer = context.prompt().line("Number of the login", OPTIONS).await?;
    let number: Option<usize> = answer.trim().parse().ok();
    number.and_then(|number| logins.get(number.checked_sub(1)?)).ok_or_else(|| {
        let message = format!("expected a number from 1 to {}", logins.len());
        ErrorKind::InputInvalid.with_message(message)
    })
}
