//! Contexts: list, select, delete.

use std::str::FromStr;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::TenantId;

use crate::framework::catalog::{Examples, Names, Requirement};
use crate::framework::command::Command;
use crate::framework::configuration::{Configuration, ContextName};
use crate::framework::context::Context;
use crate::framework::credentials::Credentials;
use crate::framework::endpoint::BaseUrl;
use crate::framework::environment;
use crate::framework::error::Result;
use crate::framework::files::Directory;
use crate::framework::output::{Cell, CommandOutput, Row, Table, name, optional, text};

/// A context.
#[derive(Serialize, JsonSchema)]
pub(super) struct ListedContext {
    /// Name.
    name: ContextName,
    /// Whether commands use it without `--context`.
    current: bool,
    /// Base URL of the service.
    base_url: Option<String>,
    /// Tenant id.
    tenant_id: Option<String>,
    /// File of CA certificates.
    ca_file: Option<String>,
    /// E-mail address of the stored session of the context.
    email: Option<String>,
}

impl Row for ListedContext {
    const EMPTY: &'static str = "No contexts. `svc auth login` creates one.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("", text(if self.current { "*" } else { "" })),
            ("CONTEXT", text(&self.name)),
            ("SERVICE", optional(self.base_url.as_ref().map(text))),
            ("TENANT", optional(self.tenant_id.as_ref().map(text))),
            ("LOGIN", optional(self.email.as_ref().map(name))),
        ]
    }
}

impl ListedContext {
    /// All contexts of a configuration.
    pub(super) fn all(configuration: &Configuration, stored: &Credentials) -> Vec<Self> {
        let contexts = configuration.contexts.iter().map(|(name, named)| Self {
            name: name.clone(),
            current: configuration.current() == Some(name),
            base_url: named.base_url.as_ref().map(ToString::to_string),
            tenant_id: named.tenant.as_ref().map(ToString::to_string),
            ca_file: named.ca_file.as_ref().map(|path| path.display().to_string()),
            email: stored.sessions.get(name).map(|session| session.email.clone()),
        });
        contexts.collect()
    }
}

/// Make a context the current one.
#[derive(Args)]
pub(crate) struct UseContext {
    /// Context.
    name: ContextName,
}

/// The current context after a change.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CurrentContext {
    /// Current context.
    context: ContextName,
    /// Previous one.
    previous: Option<ContextName>,
}

impl CommandOutput for CurrentContext {
    fn table(&self) -> Table {
        Table::fields([
            ("context", Some(text(&self.context))),
            ("previously", self.previous.as_ref().map(text)),
        ])
    }
}

impl Command for UseContext {
    type Output = CurrentContext;

    const REQUIRES: Requirement = Requirement::ConfigDirectory;
    const EXAMPLES: Examples = &[("Use another context from now on", "svc config use-context acme")];
    const AGENT_NOTES: &'static str = "Works offline. Affects all later commands of the user; prefer \
        --context or SVC_CONTEXT for single commands. `previous` in the output undoes it.";
    const SEE_ALSO: Names = &["config list", "auth switch"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (previous, named) =
            Directory::for_current_user()?.update(|configuration: &mut Configuration| {
                Ok((configuration.make_current(&self.name)?, configuration.get(&self.name)?.clone()))
            })?;
        warn_about_overrides(context, &self.name, named.base_url.as_ref(), named.tenant.as_ref());
        Ok(CurrentContext { context: self.name, previous })
    }
}

/// Warns about variables with other values than the context that has become current.
pub(in crate::commands) fn warn_about_overrides(
    context: &Context,
    name: &ContextName,
    base_url: Option<&BaseUrl>,
    tenant: Option<&TenantId>,
) {
    fn differs<T: FromStr + PartialEq>(variable: &str, value: Option<&T>) -> bool {
        environment::text(variable).is_some_and(|text| text.parse::<T>().ok().as_ref() != value)
    }
    for (variable, differs) in [
        ("SVC_CONTEXT", differs("SVC_CONTEXT", Some(name))),
        ("SVC_BASE_URL", differs("SVC_BASE_URL", base_url)),
        ("SVC_TENANT", differs("SVC_TENANT", tenant)),
    ] {
        if differs {
            context.out().warn(&format!("{variable} is set and takes precedence over the current context"));
        }
    }
}

/// Delete a context.
///
/// Keeps its session: `svc auth switch` restores the context, and then `svc auth logout` ends the session.
#[derive(Args)]
pub(crate) struct DeleteContext {
    /// Context.
    name: ContextName,
}

/// A deleted context.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeletedContext {
    /// Name.
    context: ContextName,
    /// Its base URL.
    base_url: Option<String>,
    /// Its tenant id.
    tenant_id: Option<String>,
    /// Its file of CA certificates.
    ca_file: Option<String>,
}

impl CommandOutput for DeletedContext {
    fn table(&self) -> Table {
        Table::message(&format!("Context {} deleted.", self.context))
    }
}

impl Command for DeleteContext {
    type Output = DeletedContext;

    const REQUIRES: Requirement = Requirement::ConfigDirectory;
    const EXAMPLES: Examples = &[("Delete a context", "svc config delete-context acme")];
    const AGENT_NOTES: &'static str = "Works offline. The output has the values to create it again with \
        `config set`. After the current context is deleted, no context is current.";
    const SEE_ALSO: Names = &["config list", "config use-context", "auth logout"];

    async fn run(self, _: &Context) -> Result<Self::Output> {
        let deleted = Directory::for_current_user()?
            .update(|configuration: &mut Configuration| configuration.delete(&self.name))?;
        Ok(DeletedContext {
            context: self.name,
            base_url: deleted.base_url.map(|url| url.to_string()),
            tenant_id: deleted.tenant.map(|tenant| tenant.to_string()),
            ca_file: deleted.ca_file.map(|path| path.display().to_string()),
        })
    }
}
