//! `svc auth`: login, logout and the current credential.

mod device;
mod device_login;
mod factors;
mod login;
mod password;
mod sessions;
mod switch;

use chrono::{DateTime, Utc};
use clap::Args;
use contract::session::{SubjectType, Whoami};
use contract::{ProblemKind, Role, Scope, Secret, routes};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{TenantId, UserId};

use self::sessions::{RevokedSession, login_method};
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, group};
use crate::framework::configuration::ContextName;
use crate::framework::context::Context;
use crate::framework::credential::{self, API_KEY, Credential, PLATFORM_TOKEN, TOKEN};
use crate::framework::credentials::Credentials;
use crate::framework::environment;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Table, name, optional, text, time};

group!(
    /// Log in and out, and manage sessions and passwords.
    Auth {
        Login(login::Login),
        Logout(Logout),
        Switch(switch::Switch),
        Whoami(WhoamiCommand),
        Status(Status),
        Token(Token),
        /// List and revoke sessions.
        #[command(subcommand)]
        Sessions(sessions::Sessions),
        /// Change or reset a password.
        #[command(subcommand)]
        Password(password::Password),
        /// Manage the second factors of your account.
        #[command(subcommand)]
        Factors(factors::Factors),
        /// Approve or deny the login of a device.
        #[command(subcommand)]
        Device(device::Device),
    }
);

/// Log out.
///
/// Revokes the current session and deletes it from the keyring or the file. The context stays. If the service is unreachable,
/// the session stays active and stored.
#[derive(Args)]
pub(crate) struct Logout {}

impl Command for Logout {
    type Output = RevokedSession;

    const REQUIRES: Requirement = Requirement::Session;
    // A stored session that the service has deleted after its end is not an error of this command.
    const EXAMPLES: Examples = &[("Log out of the current tenant", "svc auth logout")];
    const AGENT_NOTES: &'static str = "Revokes the session in SVC_TOKEN if set, else the stored session of \
        the tenant. A second run exits with status 4 because no session is stored. Exit status 11 means that nothing was revoked: \
        with `credentials_unusable`, the keyring does not return the token; with `configuration_invalid`, SVC_TOKEN is not the token \
        of a session.";
    const SEE_ALSO: Names = &["auth login", "auth switch", "auth sessions revoke"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let Credential { secret: token, source, .. } = context.credential(Self::REQUIRES)?;
        let revoked = context.api()?.call(&routes::LOG_OUT, &[]).session(&token)?.execute().await;
        let is_unknown = |error: &CliError| error.code == ProblemKind::SessionNotFound.code();
        match (revoked, source.variable()) {
            (Err(error), None) if is_unknown(&error) => {}
            (Err(error), Some(variable)) if is_unknown(&error) => {
                return Err(ErrorKind::ConfigurationInvalid
                    .with_message(format!("the token in {source} is not that of a session"))
                    .with_remediation(format!(
                        "Correct {variable}, or unset it to log out of the stored session."
                    )));
            }
            (revoked, _) => revoked?,
        }
        let forgotten = Credentials::forget(&token)?;
        Ok(RevokedSession { revoked: true, forgotten })
    }
}

/// Show the identity and permissions of the current credential.
#[derive(Args)]
pub(crate) struct WhoamiCommand {}

impl CommandOutput for Whoami {
    fn table(&self) -> Table {
        let scopes: Vec<_> = self.scopes.iter().copied().map(Scope::as_str).collect();
        let subject = match self.subject_type {
            SubjectType::User => "user",
            SubjectType::ApiKey => "API key",
        };
        Table::fields([
            ("tenant", Some(text(&self.tenant_id))),
            ("subject", Some(text(subject))),
            ("user", self.user_id.map(text)),
            ("key", self.key_id.map(text)),
            ("role", self.role.map(text)),
            ("scopes", Some(text(scopes.join(" ")))),
            ("method", self.method.map(|method| text(login_method(method, &self.amr)))),
            ("expires", Some(time(&self.expires_at))),
            ("idle timeout", self.idle_expires_at.as_ref().map(time)),
        ])
    }
}

impl Command for WhoamiCommand {
    type Output = Whoami;

    const ROUTES: Routes = Routes::Only(&[&routes::WHOAMI]);
    const EXAMPLES: Examples = &[
        ("Show the current user and tenant", "svc auth whoami"),
        ("Print them as JSON", "svc auth whoami --output json"),
    ];
    const AGENT_NOTES: &'static str = "Checks whether a credential is valid. Exit status 4 means that a new \
        login is needed.";
    const SEE_ALSO: Names = &["auth status", "auth login"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        context.connect(Self::REQUIRES).await?.call(&routes::WHOAMI, &[]).fetch().await
    }
}

/// List available credentials.
///
/// Works offline. To check whether a credential is valid, run `svc auth whoami`.
#[derive(Args)]
pub(crate) struct Status {}

/// A credential of the environment or of the credentials file.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct AvailableCredential {
    /// `stored`, or the environment variable that contains the credential.
    source: &'static str,
    /// Whether commands use this credential.
    current: bool,
    /// Context of a stored session.
    context: Option<ContextName>,
    /// Base URL of a stored session.
    base_url: Option<String>,
    /// Tenant of a stored session.
    tenant_id: Option<TenantId>,
    /// User of a stored session.
    user_id: Option<UserId>,
    /// E-mail address of a stored session.
    email: Option<String>,
    /// Role at the time of the login.
    role: Option<Role>,
    /// End of the absolute lifetime.
    expires_at: Option<DateTime<Utc>>,
}

impl Row for AvailableCredential {
    const EMPTY: &'static str = "No credentials.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("", text(if self.current { "*" } else { "" })),
            ("SOURCE", text(self.source)),
            ("CONTEXT", optional(self.context.as_ref().map(text))),
            ("TENANT", optional(self.tenant_id.as_ref().map(text))),
            ("EMAIL", optional(self.email.as_ref().map(name))),
            ("EXPIRES", optional(self.expires_at.as_ref().map(time))),
            ("SERVICE", optional(self.base_url.as_ref().map(text))),
            ("ROLE", optional(self.role.map(text))),
        ]
    }
}

impl Command for Status {
    type Output = ItemList<AvailableCredential>;

    const REQUIRES: Requirement = Requirement::CredentialsFile;
    const ERRORS: Errors = &[ErrorKind::NotLoggedIn];
    const EXAMPLES: Examples = &[("List stored sessions and the current one", "svc auth status")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline, so a listed credential may be expired or revoked. \
        Exit status 4 means that no credential exists.";
    const SEE_ALSO: Names = &["auth whoami", "auth switch", "config list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let mut items = environment_credentials()?;
        // A credential of the environment takes precedence over stored sessions.
        let stored = Credentials::load()?;
        let login = context.stored_login(&stored).ok().filter(|_| items.is_empty());
        if credential::is_platform_token_set() {
            let current = items.is_empty() && login.is_none();
            items.push(AvailableCredential {
                source: PLATFORM_TOKEN,
                current,
                ..AvailableCredential::default()
            });
        }
        for (name, session) in &stored.sessions {
            items.push(AvailableCredential {
                source: "stored",
                current: login.is_some_and(|(current, _)| current == name),
                context: Some(name.clone()),
                base_url: Some(session.base_url.to_string()),
                tenant_id: Some(session.tenant.clone()),
                user_id: Some(session.user_id),
                email: Some(session.email.clone()),
                role: Some(session.role),
                expires_at: Some(session.expires_at),
            });
        }
        if items.is_empty() {
            return Err(ErrorKind::NotLoggedIn.into());
        }
        Ok(ItemList { items })
    }
}

/// Credentials of the environment. Commands use the first one.
fn environment_credentials() -> Result<Vec<AvailableCredential>> {
    let mut items = Vec::new();
    for source in [TOKEN, API_KEY] {
        if credential::from_environment(source)?.is_some() {
            let current = items.is_empty();
            items.push(AvailableCredential { source, current, ..AvailableCredential::default() });
        }
    }
    Ok(items)
}

/// Warns about credentials of the environment that take precedence over stored sessions.
fn warn_about_credentials(context: &Context) {
    for variable in [TOKEN, API_KEY] {
        if environment::text(variable).is_some() {
            context.out().warn(&format!("{variable} is set and takes precedence over this login"));
        }
    }
}

/// Print the raw session token.
///
/// Anyone with the token can use your session. Pass it to other programs through a pipe or a variable, not as an argument.
#[derive(Args)]
pub(crate) struct Token {}

/// A raw session token.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionToken {
    /// Token (`svc_st_…`).
    token: Secret,
}

impl CommandOutput for SessionToken {
    fn table(&self) -> Table {
        Table::text(self.token.expose())
    }
}

impl Command for Token {
    type Output = SessionToken;

    const REQUIRES: Requirement = Requirement::StoredSession;
    const EXAMPLES: Examples = &[("Print the token of the current session", "svc auth token")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "The output is a credential: do not log or display it. Works offline.";
    const SEE_ALSO: Names = &["auth login", "auth sessions revoke", "api"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        Ok(SessionToken { token: context.credential(Self::REQUIRES)?.secret })
    }
}
