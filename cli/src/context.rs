//! Effective settings of one run. Precedence: option, environment variable, last login, default.

mod credential;

use std::cell::OnceCell;
use std::time::Duration;

use contract::TraceContext;
use tenancy::TenantId;

pub(crate) use credential::ActiveCredential;

use crate::api::{Api, ApiList};
use crate::base_url::{self, BaseUrl};
use crate::ca_file::CaFile;
use crate::catalog::CommandTree;
use crate::credentials::{CredentialStore, Credentials};
use crate::environment;
use crate::error::{ErrorKind, Result};
use crate::globals::Globals;
use crate::output::{ItemList, Output, Row};
use crate::prompt::Prompt;

/// Settings and services of a command. Reads files and variables only on demand, so that a command without credentials
/// does not fail because of them.
pub(crate) struct Context {
    globals: Globals,
    tree: CommandTree,
    out: Output,
    prompt: Prompt,
    service: OnceCell<BaseUrl>,
    trace: OnceCell<Option<TraceContext>>,
}

impl Context {
    pub(crate) fn new(globals: Globals, tree: CommandTree) -> Self {
        let (out, prompt) = (Output::new(&globals), Prompt::new(globals.no_input, globals.yes));
        Self { globals, tree, out, prompt, service: OnceCell::new(), trace: OnceCell::new() }
    }

    /// All commands of the client.
    pub(crate) fn tree(&self) -> CommandTree {
        self.tree
    }

    pub(crate) fn out(&self) -> &Output {
        &self.out
    }

    pub(crate) fn prompt(&self) -> Prompt {
        self.prompt
    }

    /// Time limit of one request.
    pub(crate) fn timeout(&self) -> Duration {
        self.globals.timeout
    }

    /// CA certificates of `--ca-file`.
    pub(crate) fn ca_file(&self) -> Result<Option<CaFile>> {
        self.globals.ca_file.as_deref().map(CaFile::read).transpose()
    }

    /// Base URL of the service. Warns once if credentials would be sent unencrypted.
    pub(crate) fn service(&self) -> Result<&BaseUrl> {
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let url = match &self.globals.base_url {
            Some(url) => url.clone(),
            None => stored_credentials()?.current_service().unwrap_or(base_url::DEFAULT).to_owned(),
        };
        let service = BaseUrl::parse(&url)?;
        if service.is_unencrypted() {
            self.out.warn(&format!("{service} uses plain http: credentials are sent unencrypted; use https"));
        }
        Ok(self.service.get_or_init(|| service))
    }

    /// HTTP client for the service.
    pub(crate) fn api(&self) -> Result<Api> {
        let (service, ca_file) = (self.service()?.clone(), self.ca_file()?);
        Api::new(service, ca_file.as_ref(), self.globals.timeout, self.trace(), self.out.clone())
    }

    /// Trace of all requests of this run: that of the calling program, or a new one.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        *self.trace.get_or_init(|| {
            let trace = environment::trace().or_else(transport::begin_trace);
            if let Some(TraceContext { trace_id, .. }) = trace {
                self.out.log_trace_id(&format!("{trace_id:032x}"));
            }
            trace
        })
    }

    /// Prints a list. Warns if it has more items than the user asked to see.
    pub(crate) fn print_list<T: Row>(&self, list: ApiList<T>) -> Result<()> {
        if list.truncated {
            let count = list.items.len();
            self.out.warn(&format!("only the first {count} items are listed; pass --all to list all"));
        }
        self.out.print(&ItemList { items: list.items })
    }

    /// Tenant of `--tenant` or `SVC_TENANT`.
    pub(crate) fn tenant_option(&self) -> Option<&TenantId> {
        self.globals.tenant.as_ref()
    }

    /// Tenant to act in: the option, that of the last login, or the answer to a prompt.
    pub(crate) async fn tenant(&self) -> Result<TenantId> {
        if let Some(tenant) = self.tenant_option() {
            return Ok(tenant.clone());
        }
        if let Some(tenant) = stored_credentials()?.current_tenant(self.service()?) {
            return Ok(tenant.clone());
        }
        let typed = self.prompt.line("Tenant", "--tenant").await?;
        typed.trim().parse().map_err(|error: tenancy::InvalidTenantId| {
            ErrorKind::InputInvalid.with_message(error.to_string())
        })
    }
}

/// Credentials of the current user's file.
pub(crate) fn stored_credentials() -> Result<Credentials> {
    CredentialStore::for_current_user()?.load()
}
