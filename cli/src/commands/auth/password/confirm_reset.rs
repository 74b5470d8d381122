//! `svc auth password confirm-reset`

use clap::Args;
use contract::ProblemKind;
use contract::identity::ConfirmReset;
use reqwest::Method;

use super::Changed;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::prompt::stdin_secret;

/// Choose a new password with the token of a reset mail. All sessions of the account end.
///
/// Asks for the password twice, without echo. A password that is refused does not use the token up.
#[derive(Args)]
pub(crate) struct ConfirmResetCommand {
    /// Reset token (`svc_pr_…`), or `-` to read it from the first line of standard input; asked for when it is left out.
    #[arg(value_name = "TOKEN")]
    token: Option<String>,
    /// Read the new password from standard input: its first line, or the line after the token's.
    #[arg(long)]
    password_stdin: bool,
}

impl Command for ConfirmResetCommand {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Service,
            examples: &[
                ("Confirm a reset, and be asked for token and password", "svc auth password confirm-reset"),
                (
                    "From a script: token and password are the lines of standard input",
                    "svc auth password confirm-reset - --password-stdin",
                ),
            ],
            agent_notes: "Needs a terminal, unless --password-stdin is given. The token works once, for at most an hour, \
                          and only until a newer one is mailed. It does not log in: run `svc auth login` next.",
            see_also: &["auth password reset", "auth login"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::TokenInvalid),
                Failure::Api(ProblemKind::ValidationFailed),
                Failure::Api(ProblemKind::PasswordTooShort),
                Failure::Api(ProblemKind::PasswordTooLong),
                Failure::Api(ProblemKind::PasswordCommon),
                Failure::Api(ProblemKind::PasswordBreached),
                Failure::Api(ProblemKind::PasswordContext),
                Failure::Api(ProblemKind::PasswordInvalid),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Changed>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let token = context.prompt().token(self.token.as_deref(), "Reset token").await?;
        let new_password = if self.password_stdin {
            stdin_secret("password").await?
        } else {
            context.prompt().new_password("--password-stdin")?
        };
        let confirm = ConfirmReset { token, new_password };
        context.api()?.call(Method::POST, "/auth/password/reset/confirm").json(&confirm)?.done().await?;
        context.out().print(&Changed { changed: true, session_kept: false })?;
        context.out().notice("Next: svc auth login");
        Ok(())
    }
}
