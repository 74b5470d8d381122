//! Settings and services of one run. The credential of a command is one of the environment, else the stored session.

use std::cell::OnceCell;
use std::time::Duration;

use contract::session::Whoami;
use contract::{TraceContext, routes};
use tenancy::{TenantId, UserId};

use crate::api::{Api, ApiList, Call};
use crate::arguments::Globals;
use crate::catalog::CommandTree;
use crate::contexts::Configuration;
use crate::credential::{Bearer, CredentialSource};
use crate::credentials::Credentials;
use crate::endpoint::{BaseUrl, CaFile};
use crate::environment::{self, API_KEY, PLATFORM_TOKEN, TOKEN};
use crate::error::{CliError, ErrorKind, Result};
use crate::files::Directory;
use crate::output::{ItemList, Output, Row};
use crate::prompt::Prompt;
use crate::signals::Signals;

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
}

impl Context {
    pub(crate) fn new(globals: Globals, tree: CommandTree) -> Self {
        let (out, prompt) = (Output::new(&globals), Prompt::new(globals.no_input, globals.yes));
        let (signals, configuration, service, trace) = Default::default();
        Self { globals, tree, out, prompt, signals, configuration, service, trace }
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
            Ok(directory) => directory.load()?,
            Err(_) => Configuration::default(),
        };
        Ok(self.configuration.get_or_init(|| configuration))
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
}

/// A credential and what the client knows about it.
#[derive(Clone, Debug)]
pub(crate) struct ActiveCredential {
    pub(crate) bearer: Bearer,
    /// User of a stored session.
    pub(crate) user: Option<UserId>,
    /// Tenant to send with the credential. The service rejects a credential of another tenant.
    pub(crate) tenant: Option<TenantId>,
}

/// User and tenant of a session.
pub(crate) struct SessionOwner {
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
}

impl Context {
    /// Session or API key to use.
    pub(crate) fn credential(&self) -> Result<ActiveCredential> {
        for variable in [TOKEN, API_KEY] {
            if let Some(bearer) = environment::credential(variable)? {
                return self.credential_from(bearer);
            }
        }
        self.stored_session()
    }

    /// Session to use. Ignores API keys.
    pub(crate) fn session(&self) -> Result<ActiveCredential> {
        match environment::credential(TOKEN)? {
            Some(bearer) => self.credential_from(bearer),
            None => self.stored_session(),
        }
    }

    /// Token of the platform administrator.
    pub(crate) fn platform_token(&self) -> Result<ActiveCredential> {
        let bearer = environment::credential(PLATFORM_TOKEN)?.ok_or(ErrorKind::PlatformTokenMissing)?;
        self.credential_from(bearer)
    }

    /// Credential for routes that accept the platform token too. A session or API key of the environment takes
    /// precedence over the platform token, and the platform token over a stored session.
    pub(crate) async fn credential_or_platform_token(&self) -> Result<ActiveCredential> {
        let has_credential =
            environment::credential(TOKEN)?.is_some() || environment::credential(API_KEY)?.is_some();
        if has_credential || environment::credential(PLATFORM_TOKEN)?.is_none() {
            return self.credential();
        }
        // The platform administrator belongs to no tenant, so the request must name one.
        Ok(ActiveCredential { tenant: Some(self.tenant().await?), ..self.platform_token()? })
    }

    /// Session or platform token, which then sees every tenant. A session of the environment takes precedence over the platform
    /// token, and the platform token over a stored session. Ignores API keys.
    pub(crate) fn session_or_platform_token(&self) -> Result<ActiveCredential> {
        let has_session = environment::credential(TOKEN)?.is_some();
        if has_session || environment::credential(PLATFORM_TOKEN)?.is_none() {
            return self.session();
        }
        self.platform_token()
    }

    /// A credential of the environment may belong to another tenant than the current context. Its tenant is checked only if
    /// the user named a tenant or a context for this run.
    fn credential_from(&self, bearer: Bearer) -> Result<ActiveCredential> {
        let is_named = self.tenant_option().is_some() || self.globals.context.is_some();
        let tenant = if is_named { self.tenant_setting()?.map(|setting| setting.value) } else { None };
        Ok(ActiveCredential { bearer, user: None, tenant })
    }

    fn stored_session(&self) -> Result<ActiveCredential> {
        let service = self.service()?;
        let tenant = self.tenant_setting()?.ok_or_else(|| not_logged_in(&service.to_string()))?.value;
        let stored = Credentials::load()?;
        let session = stored
            .session(service, &tenant)
            .ok_or_else(|| not_logged_in(&format!("tenant {tenant} of {service}")))?;
        let user = session.user_id;
        let source = CredentialSource::Stored { email: session.email.clone(), tenant: tenant.clone() };
        let secret = stored.token(service, &tenant)?.ok_or(ErrorKind::NotLoggedIn)?;
        Ok(ActiveCredential { bearer: Bearer { secret, source }, user: Some(user), tenant: Some(tenant) })
    }
}

/// Error without a stored session. A platform token, if there is one, is not accepted by the command.
fn not_logged_in(to: &str) -> CliError {
    let has_platform_token = matches!(environment::credential(PLATFORM_TOKEN), Ok(Some(_)));
    let reason =
        if has_platform_token { "this command does not accept the platform token, and you are " } else { "" };
    let error = ErrorKind::NotLoggedIn.with_message(format!("{reason}not logged in to {to}"));
    // A file that cannot be read has its own error in a command that uses it.
    let stored = Credentials::load().unwrap_or_default();
    let logins: Vec<_> =
        stored.all().map(|(service, tenant, _)| format!("tenant {tenant} of {service}")).collect();
    if logins.is_empty() {
        return error;
    }
    let advice = format!(
        "You are logged in to {}: check --base-url (SVC_BASE_URL), --tenant (SVC_TENANT) and --context (SVC_CONTEXT), or run `svc auth \
         switch`. {}",
        logins.join(", "),
        ErrorKind::NotLoggedIn.remediation().replacen("Run", "To log in here, run", 1)
    );
    error.with_remediation(advice)
}

impl Call<'_> {
    /// Sends the credential, and its tenant if known.
    pub(crate) fn authenticated(self, credential: &ActiveCredential) -> Result<Self> {
        Ok(self.bearer(&credential.bearer)?.tenant(credential.tenant.as_ref()))
    }
}

impl ActiveCredential {
    /// Whether this is the platform token.
    pub(crate) fn is_platform_token(&self) -> bool {
        self.bearer.source.variable() == Some(PLATFORM_TOKEN)
    }

    /// User and tenant of the session. Asks the service about a token of the environment.
    pub(crate) async fn owner(&self, api: &Api) -> Result<SessionOwner> {
        if let (Some(tenant), Some(user)) = (self.tenant.clone(), self.user) {
            return Ok(SessionOwner { tenant, user });
        }
        let call = api.call(&routes::WHOAMI, &[]).authenticated(self)?;
        let Whoami { tenant_id: tenant, user_id, .. } = call.fetch().await?;
        match user_id {
            Some(user) => Ok(SessionOwner { tenant, user }),
            None => Err(ErrorKind::InputInvalid.with_message("the credential is not a user session")),
        }
    }
}
