//! `svc auth password`: changes and resets of a password.

use clap::Args;
use contract::identity::{ChangePassword, ConfirmReset, InspectReset, InspectedReset, RequestReset};
use contract::session::Whoami;
use contract::{Secret, routes};
use schemars::JsonSchema;
use serde::Serialize;

use crate::framework::catalog::{Errors, Examples, Names, Routes, SchemaOf, text_input};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table};
use crate::framework::prompt::{MIN_CHARACTERS, PasswordSource};
use crate::framework::token::{TokenKind, TokenSource};

group!(
    /// Change or reset a password.
    Password {
        Change(Change),
        Reset(Reset),
        ConfirmReset(ConfirmResetCommand),
    }
);

/// Result of changing a password.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangedPassword {
    /// Always true.
    changed: bool,
    /// Whether the current session stays active. All other sessions of the user are revoked.
    session_kept: bool,
}

impl CommandOutput for ChangedPassword {
    fn table(&self) -> Table {
        Table::message(if self.session_kept {
            "Password changed. Your other sessions are revoked."
        } else {
            "Password changed. All sessions of the account are revoked."
        })
    }
}

/// Change your password.
///
/// Prompts for the current password, and twice for the new one. Revokes all your sessions except the current one.
#[derive(Args)]
pub(crate) struct Change {
    #[command(flatten)]
    passwords: PasswordSource,
}

impl Command for Change {
    type Output = ChangedPassword;

    const ROUTES: Routes = Routes::Only(&[&routes::CHANGE_PASSWORD]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[
        ("Change your password with prompts", "svc auth password change"),
        (
            "Read the current and the new password from two lines of standard input",
            "svc auth password change --password-stdin < passwords.txt",
        ),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc auth login` with the new password. If it is rejected, the password is unchanged: run \
        the command again.",
    );
    const AGENT_NOTES: &'static str = "Requires a terminal unless --password-stdin or --password-file is set: \
        the current password is the first line, the new one the second. Never pass a \
        password as an argument. A wrong current password is login_failed and counts as a failed login: \
        after several failures, wait. A password needs at least 12 characters; common and breached \
        passwords are rejected.";
    const SEE_ALSO: Names = &["auth password reset", "auth sessions list", "auth login"];
    const INPUT_SCHEMA: Option<SchemaOf> =
        Some(|| text_input("With --password-stdin, two lines: the current password, and the new one."));

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let change = async |current_password: Secret, new_password: Secret| -> Result<()> {
            let request = ChangePassword { current_password, new_password };
            let owner = api.owner().await?;
            let api = api.clone().for_user(owner.user);
            let call = api.call(&routes::CHANGE_PASSWORD, &[]).tenant(Some(&owner.tenant));
            call.json(&request)?.execute().await
        };
        if let Some([current, new]) =
            self.passwords.read(["current password", "new password"], context.out()).await?
        {
            change(current, new).await?;
        } else {
            let (prompt, options) = (context.prompt(), PasswordSource::OPTIONS);
            prompt.require_available("current password", options)?;
            // Before the person enters passwords for a session that has ended.
            api.call(&routes::WHOAMI, &[]).fetch::<Whoami>().await?;
            let current = prompt.secret("Current password", "current password", options).await?;
            let send = async |new| change(current.clone(), new).await;
            prompt.send_new_password(MIN_CHARACTERS, send).await?;
        }
        Ok(ChangedPassword { changed: true, session_kept: true })
    }
}

/// Request a mail to reset a forgotten password.
///
/// The output is the same whether or not the account exists. The mail shows until when the link is valid.
#[derive(Args)]
pub(crate) struct Reset {
    /// E-mail address of the account [default: prompt].
    #[arg(long)]
    email: Option<String>,
}

/// Result of requesting a reset.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RequestedReset {
    /// Always true, whether or not the account exists.
    requested: bool,
}

impl CommandOutput for RequestedReset {
    fn table(&self) -> Table {
        Table::message("If the account exists, a mail is sent to it.")
    }
}

impl Command for Reset {
    type Output = RequestedReset;

    const ROUTES: Routes = Routes::Only(&[&routes::REQUEST_PASSWORD_RESET]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples =
        &[("Request a password reset", "svc auth password reset --email ada@acme.example --tenant acme")];
    const AFTER_LOST_RESPONSE: Option<&'static str> =
        Some("Wait for the mail. If none arrives within a few minutes, run the command again.");
    const AGENT_NOTES: &'static str = "Succeeds for any address, so success does not mean that the account \
        exists. Only the token of the latest mail is valid. If no mail arrives, check --email and --tenant.";
    const SEE_ALSO: Names = &["auth password confirm-reset", "auth password change", "auth login"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tenant = context.tenant().await?;
        let email = match self.email {
            Some(email) => email,
            None => context.prompt().line("E-mail", "--email").await?,
        };
        let api = context.api()?;
        let call = api.call(&routes::REQUEST_PASSWORD_RESET, &[]).tenant(Some(&tenant));
        call.json(&RequestReset { email })?.execute().await?;
        Ok(RequestedReset { requested: true })
    }
}

/// Choose a new password with the token of a reset mail.
///
/// Prompts for the password twice. Revokes all sessions of the account. Also asks whether to revoke the API keys that you
/// created. A rejected password does not use up the token.
#[derive(Args)]
pub(crate) struct ConfirmResetCommand {
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    password: PasswordSource,
    /// Revoke the API keys that you created, without asking.
    #[arg(long)]
    revoke_api_keys: bool,
}

impl Command for ConfirmResetCommand {
    type Output = ChangedPassword;

    const ROUTES: Routes = Routes::Only(&[&routes::INSPECT_PASSWORD_RESET, &routes::CONFIRM_PASSWORD_RESET]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[
        ("Choose a new password with prompts", "svc auth password confirm-reset"),
        (
            "Read token and password as two lines of standard input",
            "svc auth password confirm-reset - --password-stdin < token-and-password.txt",
        ),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc auth login` with the new password. If it is rejected, the token is still valid: run the \
        command again.",
    );
    const AGENT_NOTES: &'static str = "Requires a terminal unless --password-stdin or --password-file is set. Never pass the \
        token as an argument: it is rejected. A token works once, until the time in the mail or until a newer one is sent. \
        Pass --revoke-api-keys only if the user asked for it: programs that use the keys stop working. Does not log in: run \
        `svc auth login` next.";
    const SEE_ALSO: Names = &["auth password reset", "auth login", "api-keys list"];
    const INPUT_SCHEMA: Option<SchemaOf> =
        Some(|| text_input("A line each: the token for `-`, and the new password for --password-stdin."));

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (prompt, api) = (context.prompt(), context.api()?);
        let token = self.token.read(TokenKind::RESET, context).await?;
        let confirm = async |new_password: Secret, revoke_api_keys: bool| -> Result<()> {
            let request = ConfirmReset { token: token.clone(), new_password, revoke_api_keys };
            api.call(&routes::CONFIRM_PASSWORD_RESET, &[]).json(&request)?.execute().await
        };
        let revokes_api_keys = async || -> Result<bool> {
            let question = "Revoke the API keys that you created? Programs that use them stop working.";
            Ok(self.revoke_api_keys || prompt.ask(question).await?)
        };
        if let Some([password]) = self.password.read(["password"], context.out()).await? {
            confirm(password, revokes_api_keys().await?).await?;
        } else {
            prompt.require_available("new password", PasswordSource::OPTIONS)?;
            let inspect = InspectReset { token: token.clone() };
            let call = api.call(&routes::INSPECT_PASSWORD_RESET, &[]).json(&inspect)?;
            let InspectedReset { email, tenant_id, password_min_length, .. } = call.fetch().await?;
            context.out().notice(&format!("Password reset of {email} in tenant {tenant_id}."));
            // Before the password, so that a rejected password repeats only its own questions.
            let revoke = revokes_api_keys().await?;
            let send = async |password| confirm(password, revoke).await;
            prompt.send_new_password(password_min_length, send).await?;
        }
        context.notice_later("Next: svc auth login");
        Ok(ChangedPassword { changed: true, session_kept: false })
    }
}
