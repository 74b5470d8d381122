//! `svc auth password change`

use clap::Args;
use contract::ProblemKind;
use contract::identity::ChangePassword;
use reqwest::Method;

use super::Changed;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::prompt::stdin_secret;

/// Change your own password. Your other sessions end; the one that you act with lives on.
///
/// Asks for the current password, then for the new one twice, without echo.
#[derive(Args)]
pub(crate) struct Change {
    /// Read the current password from the first line of standard input, and the new one from the second.
    #[arg(long)]
    password_stdin: bool,
}

impl Command for Change {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                ("Change your password, and be asked for both", "svc auth password change"),
                (
                    "From a script: the current and the new password are the lines of standard input",
                    "svc auth password change --password-stdin",
                ),
            ],
            agent_notes: "Needs a terminal, unless --password-stdin is given. Never pass a password as an argument. A \
                          wrong current password is login_failed, and counts like a failed login: wait after several, do \
                          not hammer. A password has at least 12 characters and is neither common nor known from a \
                          breach.",
            see_also: &["auth password reset", "auth sessions list", "auth login"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::LoginFailed),
                Failure::Api(ProblemKind::NotFound),
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
        let (caller, api) = (context.session()?, context.api()?);
        let request = self.passwords(context).await?;
        let person = caller.person(&api).await?;
        let call = api.call(Method::POST, "/auth/password/change").bearer(&caller.bearer)?;
        call.tenant(Some(&person.tenant)).user(person.user).json(&request)?.done().await?;
        context.out().print(&Changed { changed: true, session_kept: true })
    }
}

impl Change {
    async fn passwords(&self, context: &Context) -> Result<ChangePassword> {
        if self.password_stdin {
            return Ok(ChangePassword {
                current_password: stdin_secret("current password").await?,
                new_password: stdin_secret("new password").await?,
            });
        }
        let prompt = context.prompt();
        Ok(ChangePassword {
            current_password: prompt.secret("Current password", "current password", "--password-stdin")?,
            new_password: prompt.new_password("--password-stdin")?,
        })
    }
}
