//! `svc users accept-invite`

use clap::Args;
use contract::ProblemKind;
use contract::identity::{AcceptInvite, AcceptedInvite};
use reqwest::Method;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Report, Table};
use crate::prompt::stdin_secret;

/// Accept an invite: choose a password for the new account.
///
/// Asks for the password twice, without echo. A password that is refused does not use the invite up.
#[derive(Args)]
pub(crate) struct AcceptInviteCommand {
    /// Invite token (`svc_iv_…`), or `-` to read it from the first line of standard input; asked for when it is left out.
    #[arg(value_name = "TOKEN")]
    token: Option<String>,
    /// Read the password from standard input: its first line, or the line after the token's.
    #[arg(long)]
    password_stdin: bool,
}

impl Report for AcceptedInvite {
    fn table(&self) -> Table {
        Table::of_fields([
            ("tenant", Some(self.tenant_id.to_string())),
            ("user", Some(self.user_id.to_string())),
            ("email", Some(self.email.clone())),
            ("role", Some(self.role.to_string())),
        ])
    }
}

impl Command for AcceptInviteCommand {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Service,
            examples: &[
                ("Accept an invite, and be asked for token and password", "svc users accept-invite"),
                (
                    "Accept from a script: token and password are the lines of standard input",
                    "svc users accept-invite - --password-stdin",
                ),
            ],
            agent_notes: "Needs a terminal, unless --password-stdin is given. A password has at least 12 characters and is \
                          neither common nor known from a breach. The invite works once. It does not log in: run `svc auth \
                          login` next.",
            see_also: &["auth login", "users invite"],
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
            output_schema: Some(schema_of::<AcceptedInvite>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let token = context.prompt().token(self.token.as_deref(), "Invite token").await?;
        let password = if self.password_stdin {
            stdin_secret("password").await?
        } else {
            context.prompt().new_password("--password-stdin")?
        };
        let accept = AcceptInvite { token, password };
        let accepted: AcceptedInvite =
            context.api()?.call(Method::POST, "/users/accept-invite").json(&accept)?.fetch().await?;
        context.out().print(&accepted)?;
        context.out().notice(&format!(
            "Next: svc auth login --email {} --tenant {}",
            accepted.email, accepted.tenant_id
        ));
        Ok(())
    }
}
