//! Settings and services of one run. The credential of a command is one of the environment, else the stored session.

mod settings;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use contract::TraceContext;
use tenancy::TenantId;

use crate::framework::api::{Api, TenantsApi};
use crate::framework::arguments::{AllTenants, Globals};
use crate::framework::ca_file::CaFile;
use crate::framework::catalog::{CommandTree, Requirement};
use crate::framework::configuration::{Configuration, ContextName};
use crate::framework::credential::{self, Credential, CredentialSource};
use crate::framework::credentials::{Credentials, StoredSession};
use crate::framework::endpoint::BaseUrl;
use crate::framework::environment;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::files::Directory;
use crate::framework::output::Output;
use crate::framework::prompt::Prompt;
use crate::framework::settings::{Origin, Setting};
use crate::framework::signals::Signals;

/// Prints a notice or a warning.
type PrintMessage = fn(&Output, &str);

/// Settings and services of a command. Reads files and variables only on demand, so that a command without credentials
/// does not fail because of them.
pub(crate) struct Context {
    globals: Globals,
    tree: CommandTree,
    out: Output,
    prompt: Prompt,
    signals: Signals,
    configuration: OnceCell<Configuration>,
    service: OnceCell<BaseUrl>,
    trace: OnceCell<Option<TraceContext>>,
    /// Notices and warnings to print after the data.
    later: RefCell<Vec<(PrintMessage, String)>>,
}

impl Context {
    pub(crate) fn new(globals: Globals, tree: CommandTree) -> Self {
        let (out, prompt) = (Output::new(&globals), Prompt::new(&globals));
        let (signals, configuration, service, trace, later) = Default::default();
        Self { globals, tree, out, prompt, signals, configuration, service, trace, later }
    }

    pub(crate) fn globals(&self) -> &Globals {
        &self.globals
    }

    /// Contexts and other stored settings. Empty without a home directory, as in a container.
    pub(crate) fn configuration(&self) -> Result<&Configuration> {
        if let Some(configuration) = self.configuration.get() {
            return Ok(configuration);
        }
        let configuration = match Directory::for_current_user() {
            // The home directory of another user, which the command does not need.
            Ok(directory) if self.has_service() && directory.is_denied::<Configuration>() => {
                Configuration::default()
            }
            Ok(directory) => directory.load()?,
            Err(_) => Configuration::default(),
        };
        Ok(self.configuration.get_or_init(|| configuration))
    }

    /// Returns whether options or variables name the service.
    fn has_service(&self) -> bool {
        self.globals.base_url.is_some() && self.globals.context.is_none()
    }

    /// All commands of the client.
    pub(crate) fn tree(&self) -> CommandTree {
        self.tree
    }

    pub(crate) fn out(&self) -> &Output {
        &self.out
    }

    /// Prints information for people after the data of the command.
    pub(crate) fn notice_later(&self, text: impl Into<String>) {
        self.later.borrow_mut().push((Output::notice, text.into()));
    }

    /// Prints a warning after the data of the command and earlier notices.
    pub(crate) fn warn_later(&self, text: impl Into<String>) {
        self.later.borrow_mut().push((Output::warn, text.into()));
    }

    pub(crate) fn print_later_messages(&self) {
        self.later.take().iter().for_each(|(print, text)| print(&self.out, text));
    }

    pub(crate) fn prompt(&self) -> Prompt {
        self.prompt
    }

    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Time limit of one request.
    pub(crate) fn timeout(&self) -> Duration {
        self.globals.timeout
    }

    /// Lets `--context` name a context that does not exist yet. For a command that creates it, before it reads settings.
    pub(crate) fn accept_new_context(&self) -> Result<()> {
        let mut configuration = Directory::for_current_user()?.load::<Configuration>()?;
        if let Some(name) = &self.globals.context {
            configuration.contexts.entry(name.clone()).or_default();
        }
        // It is not set yet.
        let _ = self.configuration.set(configuration);
        Ok(())
    }

    /// CA certificates to trust instead of the system's.
    pub(crate) fn ca_file(&self) -> Result<Option<CaFile>> {
        let setting = self.ca_file_setting()?;
        setting.map(|setting| CaFile::read(&setting.value, setting.origin)).transpose()
    }

    /// Base URL of the service. Warns once if credentials would be sent unencrypted.
    pub(crate) fn service(&self) -> Result<&BaseUrl> {
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let service = self.base_url()?.value;
        if service.is_unencrypted() {
            self.out.warn(&format!("{service} uses plain http: credentials are sent unencrypted; use https"));
        }
        Ok(self.service.get_or_init(|| service))
    }

    /// HTTP client for the service.
    pub(crate) fn api(&self) -> Result<Api> {
        self.api_for(self.service()?.clone())
    }

    /// HTTP client with the settings of this run for another address of the service.
    pub(crate) fn api_for(&self, service: BaseUrl) -> Result<Api> {
        let ca_file = self.ca_file()?;
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

    /// Tenant of `--tenant` or `SVC_TENANT`.
    pub(crate) fn tenant_option(&self) -> Option<&TenantId> {
        self.globals.tenant.as_ref()
    }

    /// Tenant to act in: the setting, or the answer to a prompt.
    pub(crate) async fn tenant(&self) -> Result<TenantId> {
        if let Some(tenant) = self.tenant_setting()? {
            return Ok(tenant.value);
        }
        let typed = self.prompt.line("Tenant", "--tenant").await?;
        typed.trim().parse().map_err(|error: tenancy::InvalidTenantId| {
            ErrorKind::InputInvalid.with_message(error.to_string())
        })
    }

    /// Credential of a command with this requirement: the first of its variables that is set, else the stored session.
    pub(crate) fn credential(&self, requirement: Requirement) -> Result<Credential> {
        for variable in requirement.variables() {
            if let Some(credential) = credential::from_environment(variable.name)? {
                // It may belong to another tenant than the current context. Its tenant is checked only if the user named a tenant or
                // a context for this run.
                let is_named = self.tenant_option().is_some() || self.globals.context.is_some();
                let tenant =
                    if is_named { self.tenant_setting()?.map(|setting| setting.value) } else { None };
                return Ok(Credential { tenant, ..credential });
            }
        }
        if requirement == Requirement::PlatformToken {
            return Err(ErrorKind::PlatformTokenMissing.into());
        }
        self.stored_session()
    }

    /// HTTP client that sends the credential of a command with this requirement.
    pub(crate) async fn connect(&self, requirement: Requirement) -> Result<Api> {
        let mut credential = self.credential(requirement)?;
        if credential.is_platform_token() {
            // The platform administrator belongs to no tenant. A request of a user of a tenant must name one.
            credential.tenant = match requirement {
                Requirement::CredentialOrPlatformToken | Requirement::SessionOrPlatformTokenOfTenant => {
                    Some(self.tenant().await?)
                }
                _ if self.globals.is_given("tenant") => {
                    return Err(ErrorKind::Usage
                        .with_message("with the platform token, --tenant has no effect on this command")
                        .with_remediation("Omit --tenant: the command does not depend on it."));
                }
                _ => None,
            };
        }
        self.api()?.with_credential(credential)
    }

    /// HTTP client for a command that is about one tenant or all. The platform token is limited to the tenant of the option, the
    /// variable or the context.
    pub(crate) fn connect_to_tenants(
        &self,
        requirement: Requirement,
        AllTenants { all_tenants }: AllTenants,
    ) -> Result<TenantsApi> {
        if all_tenants && self.tenant_option().is_some() {
            return Err(ErrorKind::Usage.with_message(
                "--all-tenants is set together with --tenant or the variable SVC_TENANT: pass one of them, and unset the variable",
            ));
        }
        let mut credential = self.credential(requirement)?;
        let mut tenant = None;
        if credential.is_platform_token() {
            let setting = if all_tenants { None } else { self.tenant_setting()? };
            if let Some(Setting { value, origin: origin @ Origin::Context(_) }) = &setting {
                self.out.warn(&format!("limited to the tenant {value} of {origin}; see --all-tenants"));
            }
            tenant = setting.map(|setting| setting.value);
            credential.tenant.clone_from(&tenant);
        } else if all_tenants {
            return Err(ErrorKind::Usage
                .with_message("--all-tenants requires the platform token")
                .with_remediation("Omit --all-tenants, or set SVC_PLATFORM_TOKEN and unset SVC_TOKEN."));
        }
        Ok(TenantsApi { api: self.api()?.with_credential(credential)?, tenant })
    }

    fn stored_session(&self) -> Result<Credential> {
        let stored = Credentials::load()?;
        let (context, session) = self.stored_login(&stored)?;
        let StoredSession { email, tenant, user_id, .. } = session.clone();
        let source = CredentialSource::Stored { email, tenant: tenant.clone() };
        Ok(Credential {
            secret: session.load_token(context)?,
            source,
            user: Some(user_id),
            tenant: Some(tenant),
        })
    }

    /// Context and session of the stored login that commands use: that of the context in use. If options name another service or
    /// tenant, the only login of these.
    pub(crate) fn stored_login<'a>(
        &self,
        stored: &'a Credentials,
    ) -> Result<(&'a ContextName, &'a StoredSession)> {
        let service = self.service()?;
        let tenant = self.tenant_setting()?.ok_or_else(|| not_logged_in(&service.to_string()))?.value;
        let of_service = |(_, session): &(&ContextName, &StoredSession)| session.is_of(service, &tenant);
        if let Some((name, named)) = self.named_context()?
            && named.base_url.as_ref() == Some(service)
            && named.tenant.as_ref() == Some(&tenant)
        {
            let absent = || not_logged_in(&format!("tenant {tenant} of {service} in context {name}"));
            return stored
                .sessions
                .iter()
                .filter(of_service)
                .find(|(own, _)| *own == name)
                .ok_or_else(absent);
        }
        let logins: Vec<_> = stored.sessions.iter().filter(of_service).collect();
        match logins.as_slice() {
            [] => Err(not_logged_in(&format!("tenant {tenant} of {service}"))),
            [only] => Ok(*only),
            several => {
                let names: Vec<_> =
                    several.iter().map(|(name, session)| format!("{name} ({})", session.email)).collect();
                Err(ErrorKind::NotLoggedIn
                    .with_message(format!(
                        "several logins to tenant {tenant} of {service}: {}",
                        names.join(", ")
                    ))
                    .with_remediation("Choose one with --context (SVC_CONTEXT)."))
            }
        }
    }
}

/// Error without a stored session. A platform token, if there is one, is not accepted by the command.
fn not_logged_in(to: &str) -> CliError {
    let reason = if credential::is_platform_token_set() {
        "this command does not accept the platform token, and you are "
    } else {
        ""
    };
    let error = ErrorKind::NotLoggedIn.with_message(format!("{reason}not logged in to {to}"));
    // A file that cannot be read has its own error in a command that uses it.
    let stored = Credentials::load().unwrap_or_default();
    let logins: BTreeSet<_> = stored
        .sessions
        .iter()
        .map(|(name, StoredSession { tenant, base_url, email, .. })| {
            format!("tenant {tenant} of {base_url} in context {name} ({email})")
        })
        .collect();
    if logins.is_empty() {
        return error;
    }
    let advice = format!(
        "You are logged in to {}: check --base-url (SVC_BASE_URL), --tenant (SVC_TENANT) and --context (SVC_CONTEXT), or run `svc auth \
         switch`. {}",
        Vec::from_iter(logins).join(", "),
        ErrorKind::NotLoggedIn.remediation().replacen("Run", "To log in here, run", 1)
    );
    error.with_remediation(advice)
}
