//! The effective settings of one run: a flag wins over its variable, that over the last login, that over the default.

mod caller;
mod person;

use std::cell::OnceCell;
use std::time::Duration;

use contract::TraceContext;
use tenancy::TenantId;

pub(crate) use caller::Caller;

use crate::api::{Api, Part};
use crate::arguments::Globals;
use crate::base_url::{self, BaseUrl};
use crate::ca_file::CaFile;
use crate::credentials::{CredentialStore, Credentials};
use crate::environment;
use crate::error::{Fault, Result};
use crate::output::{Listed, Output, Row};
use crate::prompt::Prompt;

/// What a command works with. Nothing is read before a command asks for it, so that a command that needs no
/// credentials does not fail over them.
pub(crate) struct Context {
    globals: Globals,
    out: Output,
    prompt: Prompt,
    service: OnceCell<BaseUrl>,
    trace: OnceCell<Option<TraceContext>>,
}

impl Context {
    /// The context of these options.
    pub(crate) fn new(globals: Globals) -> Self {
        let (out, prompt) = (Output::new(&globals), Prompt::new(globals.no_input, globals.yes));
        Self { globals, out, prompt, service: OnceCell::new(), trace: OnceCell::new() }
    }

    /// How the command speaks.
    pub(crate) fn out(&self) -> &Output {
        &self.out
    }

    /// How it asks.
    pub(crate) fn prompt(&self) -> Prompt {
        self.prompt
    }

    /// How long one request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.globals.timeout
    }

    /// The certificates to trust, where the system's are not meant.
    pub(crate) fn ca_file(&self) -> Result<Option<CaFile>> {
        self.globals.ca_file.as_deref().map(CaFile::read).transpose()
    }

    /// The service to talk to. Says once when credentials would cross a network in the clear.
    pub(crate) fn service(&self) -> Result<&BaseUrl> {
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let chosen = match &self.globals.base_url {
            Some(url) => url.clone(),
            None => stored()?.current_service().unwrap_or(base_url::DEFAULT).to_owned(),
        };
        let service = BaseUrl::parse(&chosen)?;
        if service.is_exposed() {
            self.out.warn(&format!(
                "{service} is plain http: credentials cross the network unprotected; use https"
            ));
        }
        Ok(self.service.get_or_init(|| service))
    }

    /// The way to the service.
    pub(crate) fn api(&self) -> Result<Api> {
        let (service, ca_file) = (self.service()?.clone(), self.ca_file()?);
        Api::new(service, ca_file.as_ref(), self.globals.timeout, self.trace(), self.out.clone())
    }

    /// The one trace of all requests of this run: the caller's, or one that begins here.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        *self.trace.get_or_init(|| {
            let trace = environment::trace().or_else(transport::begin_trace);
            if let Some(TraceContext { trace_id, .. }) = trace {
                self.out.trace_id(&format!("{trace_id:032x}"));
            }
            trace
        })
    }

    /// Prints what was read of a list; says so when that is only its beginning and nobody asked for less.
    pub(crate) fn print_part<T: Row>(&self, part: Part<T>) -> Result<()> {
        if part.cut {
            let count = part.items.len();
            self.out.warn(&format!("there are more than these {count}; --all lists them all"));
        }
        self.out.print(&Listed { items: part.items })
    }

    /// The tenant that was named for this run.
    pub(crate) fn named_tenant(&self) -> Option<&TenantId> {
        self.globals.tenant.as_ref()
    }

    /// The tenant to act in: the named one, that of the last login, or the one that a person types.
    pub(crate) async fn tenant(&self) -> Result<TenantId> {
        if let Some(named) = self.named_tenant() {
            return Ok(named.clone());
        }
        if let Some(last) = stored()?.current_tenant(self.service()?) {
            return Ok(last.clone());
        }
        let typed = self.prompt.line("Tenant", "--tenant").await?;
        typed
            .trim()
            .parse()
            .map_err(|error: tenancy::InvalidTenantId| Fault::InputInvalid.because(error.to_string()))
    }
}

/// What logins have left.
pub(crate) fn stored() -> Result<Credentials> {
    CredentialStore::of_this_user()?.load()
}
