//! `svc invites revoke`

use clap::Args;
use contract::ProblemKind;
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::InviteId;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{CliError, Exit, Fault, Result};
use crate::output::{Report, Table};

/// Take an invite back: its token no longer works.
///
/// Needs an administrator's session, an API key with the scope `users:write`, or the operator's token together with a
/// tenant. Asks before it acts.
#[derive(Args)]
pub(crate) struct Revoke {
    /// Id of the invite.
    #[arg(value_name = "INVITE_ID")]
    invite_id: InviteId,
}

/// An invite that was taken back.
#[derive(Serialize, JsonSchema)]
struct Revoked {
    /// Its id.
    invite_id: InviteId,
    /// Always true: nobody can accept it, now or before.
    revoked: bool,
}

impl Report for Revoked {
    fn table(&self) -> Table {
        Table::of_text("The invite is revoked.")
    }
}

impl Command for Revoke {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::CallerOrPlatformAdmin,
            examples: &[
                (
                    "Revoke an invite, and be asked first",
                    "svc invites revoke 01890a5d-ac96-774b-bcce-b302099a8057",
                ),
                ("The same from a script", "svc invites revoke 01890a5d-ac96-774b-bcce-b302099a8057 --yes"),
            ],
            agent_notes: "Needs --yes where nobody can be asked; pass it only when the person you work for wants it. \
                          Repeating it succeeds. An invite that was accepted cannot be revoked: disable the user instead.",
            see_also: &["invites list", "invites resend", "users disable"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::Declined),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::InsufficientScope),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::UserExists),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Revoked>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller_or_platform_admin().await?;
        context.prompt().confirm(&format!("Revoke invite {}?", self.invite_id)).await?;
        let api = context.api()?;
        let call = api.call(Method::DELETE, &format!("/users/invites/{}", self.invite_id));
        call.bearer(&caller.bearer)?.tenant(caller.tenant.as_ref()).done().await.map_err(advised)?;
        context.out().print(&Revoked { invite_id: self.invite_id, revoked: true })
    }
}

/// The remedy of the API is for those who invite: that the person can log in is no help here.
fn advised(error: CliError) -> CliError {
    match error.exit {
        Exit::Conflict => {
            error.advising("The invite was accepted. Run `svc users disable` to shut the person out.")
        }
        _ => error,
    }
}
