//! `svc auth login`: login with a password or from another device.

use chrono::{DateTime, Utc};
use clap::Args;
use contract::factors::{FactorMethod, StartSetup, UseFactor};
use contract::identity;
use contract::problem::SecondFactor;
use contract::session::IssuedSession;
use contract::{Problem, ProblemKind, Role, Secret, routes};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{TenantId, UserId};

use super::device_login;
use super::factors::show_secret;
use crate::commands::config::warn_about_overrides;
use crate::framework::catalog::{Errors, Examples, Names, Routes, SchemaOf, text_input};
use crate::framework::command::Command;
use crate::framework::configuration::{Configuration, ContextName, CredentialStore};
use crate::framework::context::Context;
use crate::framework::credentials::{Credentials, StoredSession};
use crate::framework::error::{ErrorKind, Result};
use crate::framework::files::Directory;
use crate::framework::input::{run_blocking, stdin_secret};
use crate::framework::keyring;
use crate::framework::output::{CommandOutput, Table, escape, text, time};
use crate::framework::prompt::PasswordSource;
use crate::framework::terminal::print_line;

/// What a login asks for to complete it.
struct Question {
    text: &'static str,
    /// How to answer without a terminal.
    option: &'static str,
    /// Whether an empty answer continues in a browser.
    has_browser: bool,
}

/// Question for an account with an app only.
const APP: Question = Question {
    text: "Code of the authenticator app, or a recovery code",
    option: "--code-stdin",
    has_browser: false,
};
/// Question for an account with passkeys too.
const APP_OR_PASSKEY: Question = Question {
    text: "Code of the authenticator app, a recovery code, or Enter to use a passkey in a browser",
    option: "--code-stdin, or --device to use a passkey in a browser",
    has_browser: true,
};
/// Question for an account with passkeys only.
const PASSKEY: Question = Question {
    text: "Enter to use a passkey in a browser, or a recovery code",
    option: "--device to use a passkey in a browser, or --code-stdin with a recovery code",
    has_browser: true,
};
/// Question for the first code of a new app.
const NEW_APP: Question = Question { text: "Code of the app", option: "--code-stdin", has_browser: false };

/// Log in with a password, or with approval on another device.
///
/// Prompts for the password, and for a code if the account has a second factor. If the tenant requires one and the account has none,
/// sets up an authenticator app, which needs a terminal.
/// With --device, shows a code to approve in a browser on any device. Stores the session in the keyring
/// of the desktop if it can be used, else in a file that only you can read (`svc config set credential-store` chooses one). Makes the
/// context of the login current, so that later commands use the session. Each context has its own session: a login with another e-mail
/// address creates another context. Revokes the session of the context that it replaces.
#[derive(Args)]
pub(crate) struct Login {
    /// E-mail address of the account [default: prompt].
    #[arg(long)]
    email: Option<String>,
    #[command(flatten)]
    password: PasswordSource,
    /// Read the code of the authenticator app, or a recovery code, from the next line of standard input.
    #[arg(long)]
    code_stdin: bool,
    /// Show a URL and a code, and wait until the code is approved there.
    #[arg(long, conflicts_with_all = ["email", "password_stdin", "password_file", "code_stdin"])]
    device: bool,
}

/// Result of a login. Does not contain the token: `svc auth token` prints it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LoginResult {
    /// Context, which is the current one now.
    context: ContextName,
    /// Where the session is stored: `keyring` or `file`.
    stored_in: &'static str,
    /// Base URL of the service.
    base_url: String,
    /// Tenant id.
    tenant_id: TenantId,
    /// User id.
    user_id: UserId,
    /// E-mail address of the user.
    email: String,
    /// Role of the user.
    role: Role,
    /// End of the absolute lifetime of the session.
    expires_at: DateTime<Utc>,
    /// End of the session if it is not used.
    idle_expires_at: DateTime<Utc>,
}

impl CommandOutput for LoginResult {
    fn table(&self) -> Table {
        Table::fields([
            ("context", Some(text(&self.context))),
            ("service", Some(text(&self.base_url))),
            ("tenant", Some(text(&self.tenant_id))),
            ("user", Some(text(self.user_id))),
            ("email", Some(text(&self.email))),
            ("role", Some(text(self.role))),
            ("expires", Some(time(&self.expires_at))),
            ("idle timeout", Some(time(&self.idle_expires_at))),
        ])
    }
}

impl Command for Login {
    type Output = LoginResult;

    const ROUTES: Routes = Routes::Only(&[
        &routes::LOG_IN,
        &routes::USE_FACTOR,
        &routes::SET_UP_TOTP_AT_LOGIN,
        &routes::START_DEVICE,
    ]);
    const ERRORS: Errors = &[
        ErrorKind::DevicePending,
        ErrorKind::DeviceDenied,
        ErrorKind::InputNeeded,
        ErrorKind::InputInvalid,
        ErrorKind::InputUnreadable,
    ];
    const EXAMPLES: Examples = &[
        ("Log in with a password prompt", "svc auth login --email ada@acme.example --tenant acme"),
        (
            "Read the password from standard input",
            "svc auth login --email ada@acme.example --tenant acme --password-stdin < password.txt",
        ),
        ("Log in on a machine without a browser", "svc auth login --device --tenant acme"),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "The service may have created a session. Log in again: `svc auth sessions list` then shows it, \
        and `svc auth sessions revoke` revokes it.",
    );
    // The session is stored before anything is printed.
    const AFTER_LOST_OUTPUT: Option<&'static str> = None;
    const AGENT_NOTES: &'static str = "Requires a terminal unless --password-stdin, --password-file or \
        --device is set. An account with a second factor also needs \
        --code-stdin: with --password-stdin, the code is the second line. second_factor_setup_required means that a person must \
        first set up an authenticator app in a terminal, or an app or a passkey on the page. With --device, a person must open the URL and \
        approve the code within ten minutes; \
        both are printed to stderr, with --output json as {\"device\": …} on one line. Never pass a \
        password as an argument. login_failed does not reveal whether the password, the address or the \
        tenant is wrong. After several failures, even the correct password is rejected for a while: wait. \
        SVC_TOKEN and SVC_API_KEY take precedence over the stored session. --context names the context to create or change.";
    const SEE_ALSO: Names = &[
        "auth logout",
        "auth whoami",
        "auth sessions list",
        "auth password reset",
        "users accept-invite",
        "auth device approve",
    ];
    const INPUT_SCHEMA: Option<SchemaOf> =
        Some(|| text_input("A line each: the password for --password-stdin, and the code for --code-stdin."));

    async fn run(self, context: &Context) -> Result<Self::Output> {
        context.accept_new_context()?;
        // Check that the session can be stored before it is created.
        run_blocking(|| Directory::for_current_user()?.require_writable::<Credentials>()).await?;
        let place = token_place(context).await?;
        if !self.device && self.password.is_prompt() && context.prompt().is_available() {
            // Before the person answers questions for a server that does not answer.
            context.api()?.call(&routes::GET_VERSION, &[]).send_any().await?;
        }
        let tenant = context.tenant().await?;
        let (email, issued) = if self.device {
            device_login::log_in(context, &tenant).await?
        } else {
            self.with_password(context, &tenant).await?
        };
        let token = issued.session_id.clone();
        let (result, revoked) = match store_session(context, email, issued, place) {
            Ok((result, replaced)) => (Ok(result), replaced),
            // Without its token, the new session would stay active until its end.
            Err(error) => (Err(error), Some(token)),
        };
        if let Some(token) = revoked {
            // A failure, such as an expired session, is not an error of the login.
            let _ = context.api()?.call(&routes::LOG_OUT, &[]).session(&token)?.execute().await;
        }
        let result = result?;
        warn_about_overrides(context, &result.context, Some(context.service()?), Some(&result.tenant_id));
        super::warn_about_credentials(context);
        Ok(result)
    }
}

impl Login {
    /// Returns the e-mail address and the session.
    async fn with_password(self, context: &Context, tenant: &TenantId) -> Result<(String, IssuedSession)> {
        let email = match self.email {
            Some(email) => email,
            None => context.prompt().line("E-mail", "--email").await?,
        };
        let password = if let Some([password]) = self.password.read(["password"], context.out()).await? {
            password
        } else {
            let question = format!("Password of {email} in {tenant}");
            context.prompt().secret(&question, "password", PasswordSource::OPTIONS).await?
        };
        // Spaces around the address must not make another account of it.
        let request = identity::Login { email: email.trim().to_owned(), password };
        let api = context.api()?;
        let call = api.call(&routes::LOG_IN, &[]).tenant(Some(tenant));
        let response = call.json(&request)?.send_any().await?;
        let problem = serde_json::from_slice::<Problem>(response.body()).ok();
        let is_setup = problem.as_ref().is_some_and(|problem| {
            ProblemKind::from_code(&problem.code) == Some(ProblemKind::SecondFactorSetupRequired)
        });
        let issued = match problem.and_then(|problem| problem.second_factor) {
            Some(SecondFactor { challenge, methods, .. }) if !is_setup => {
                let has = |method| methods.contains(&method);
                let question = match (has(FactorMethod::Totp), has(FactorMethod::Passkey)) {
                    (true, true) => APP_OR_PASSKEY,
                    (_, false) => APP,
                    (false, true) => PASSKEY,
                };
                match complete(context, tenant, &challenge, self.code_stdin, &question).await? {
                    Some(issued) => issued,
                    None => return device_login::log_in(context, tenant).await,
                }
            }
            Some(SecondFactor { challenge, .. }) if !self.code_stdin && context.prompt().is_available() => {
                set_up(context, tenant, &challenge).await?
            }
            _ => response.error_for_status()?.json()?,
        };
        Ok((request.email, issued))
    }
}

/// Sets up the authenticator app that the tenant requires, which completes the login.
async fn set_up(context: &Context, tenant: &TenantId, challenge: &Secret) -> Result<IssuedSession> {
    print_line("Your organization requires a second factor. Set up an authenticator app:");
    let request = StartSetup { challenge: challenge.clone() };
    let api = context.api()?;
    let call = api.call(&routes::SET_UP_TOTP_AT_LOGIN, &[]).tenant(Some(tenant));
    show_secret(&call.json(&request)?.fetch().await?);
    let issued = loop {
        // The service may not have answered after the app was set up: the same code is accepted again, with new recovery codes.
        match complete(context, tenant, challenge, false, &NEW_APP).await {
            Err(error) if error.retryable => {
                context.out().notice(&format!("{} Enter the code again.", error.message));
            }
            Ok(None) => {}
            Ok(Some(issued)) => break issued,
            Err(error) => return Err(error),
        }
    };
    print_line(
        "Recovery codes. Each replaces the second factor once. Store them now: they are not shown again.",
    );
    for code in issued.recovery_codes.iter().flatten() {
        print_line(&escape(code.expose()));
    }
    Ok(issued)
}

/// Completes a login with a code. Prompts again after a wrong one. `None` to continue in a browser.
async fn complete(
    context: &Context,
    tenant: &TenantId,
    challenge: &Secret,
    is_piped: bool,
    question: &Question,
) -> Result<Option<IssuedSession>> {
    let Question { text, option, has_browser } = question;
    let (api, prompt) = (context.api()?, context.prompt());
    loop {
        let typed = match (is_piped, has_browser) {
            (true, _) => stdin_secret("code", context.out()).await?,
            (false, false) => prompt.secret(text, "code", option).await?,
            (false, true) => match prompt.secret_or_empty(text, "code", option).await? {
                Some(typed) => typed,
                None => return Ok(None),
            },
        };
        let call = api.call(&routes::USE_FACTOR, &[]).tenant(Some(tenant));
        match call.json(&answer(challenge, typed))?.fetch().await {
            Err(error)
                if !is_piped && matches!(&*error.code, "second_factor_failed" | "validation_failed") =>
            {
                error.message.lines().for_each(|line| context.out().notice(line.trim_start()));
            }
            result => return result.map(Some),
        }
    }
}

/// The codes of apps have digits only.
fn answer(challenge: &Secret, typed: Secret) -> UseFactor {
    let is_code = typed.expose().chars().all(|c| c.is_ascii_digit() || c.is_whitespace());
    let (code, recovery_code) = if is_code { (Some(typed), None) } else { (None, Some(typed)) };
    let challenge = challenge.clone();
    UseFactor { challenge, code, recovery_code, assertion: None, credential: None, name: None }
}

/// Where a token is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TokenPlace {
    Keyring,
    /// The credentials file, and why the keyring is not used.
    File(Option<String>),
}

/// Where the session of this login is going to be stored.
async fn token_place(context: &Context) -> Result<TokenPlace> {
    let choice = context.configuration()?.credential_store.unwrap_or_default();
    if choice == CredentialStore::File {
        return Ok(TokenPlace::File(None));
    }
    match (run_blocking(|| Ok(keyring::probe())).await?, choice) {
        (Ok(()), _) => Ok(TokenPlace::Keyring),
        (Err(reason), CredentialStore::Keyring) => Err(ErrorKind::ConfigurationInvalid
            .with_message(format!("the keyring cannot be used: {reason}"))
            .with_remediation("Unlock or start the keyring, or run `svc config set credential-store file`.")),
        (Err(reason), _) => Ok(TokenPlace::File(Some(reason))),
    }
}

/// Prints where the session is stored.
fn report_place(context: &Context, place: &TokenPlace) -> Result<()> {
    let file = Directory::for_current_user()?.path_of::<Credentials>();
    let in_file = format!("The session is stored in {}, which only you can read.", file.display());
    context.out().notice(&match place {
        TokenPlace::Keyring => "The session is stored in the keyring.".to_owned(),
        TokenPlace::File(None) => in_file,
        TokenPlace::File(Some(reason)) => format!("{in_file} The keyring cannot be used: {reason}."),
    });
    Ok(())
}

/// Stores the session and makes its context current. Also returns the token of the session that it replaces.
fn store_session(
    context: &Context,
    email: String,
    issued: IssuedSession,
    mut place: TokenPlace,
) -> Result<(LoginResult, Option<Secret>)> {
    let (service, tenant) = (context.service()?, &issued.tenant_id);
    let stored = Credentials::load()?;
    let name = match &context.globals().context {
        Some(name) => name.clone(),
        None => context.configuration()?.name_for(service, tenant, &email, |name| {
            stored
                .sessions
                .get(name)
                .is_some_and(|own| !own.is_of(service, tenant) || !own.email.eq_ignore_ascii_case(&email))
        }),
    };
    let previous = stored.sessions.get(&name);
    // A token that the keyring does not return cannot be revoked.
    let replaced = previous.and_then(|session| session.load_token(&name).ok());
    if let Some(other) = previous.filter(|session| !session.email.eq_ignore_ascii_case(&email)) {
        context.out().notice(&format!("The login of {} in context {name} is replaced.", other.email));
    }
    let mut session = StoredSession {
        base_url: service.clone(),
        tenant: tenant.clone(),
        token: None,
        user_id: issued.user_id,
        email: email.clone(),
        role: issued.role,
        expires_at: issued.expires_at,
    };
    if place == TokenPlace::Keyring
        && let Err(reason) = keyring::store(&session.key(&name), &issued.session_id)
    {
        place = TokenPlace::File(Some(reason));
    }
    let is_in_file = place != TokenPlace::Keyring;
    session.token = is_in_file.then(|| issued.session_id.clone());
    let ca_file = context
        .ca_file_setting()?
        .map(|setting| std::path::absolute(setting.value))
        .transpose()
        .map_err(|error| ErrorKind::ConfigurationInvalid.with_message(error.to_string()))?;
    let previous = Credentials::update(|all| all.sessions.insert(name.clone(), session))?;
    let is_kept = |previous: &StoredSession| !is_in_file && previous.is_of(service, tenant);
    if let Some(previous) = previous.filter(|previous| previous.token.is_none() && !is_kept(previous)) {
        // The previous session is revoked, so a token that stays in the keyring is of no use.
        let _ = keyring::delete(&previous.key(&name));
    }
    report_place(context, &place)?;
    let recorded = Directory::for_current_user()?.update(|configuration: &mut Configuration| {
        configuration.record_login(&name, service, tenant, ca_file);
        Ok(())
    });
    if let Err(error) = recorded {
        let advice = format!("pass --base-url {service} --tenant {tenant} to use the session");
        context.out().warn(&format!("the context is not stored: {}; {advice}", error.message));
    }
    let result = LoginResult {
        context: name,
        stored_in: if is_in_file { "file" } else { "keyring" },
        base_url: service.to_string(),
        tenant_id: issued.tenant_id,
        user_id: issued.user_id,
        email,
        role: issued.role,
        expires_at: issued.expires_at,
        idle_expires_at: issued.idle_expires_at,
    };
    Ok((result, replaced))
}
