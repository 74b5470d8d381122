//! `svc invites list`

use clap::Args;
use contract::ProblemKind;
use contract::identity::{Invite, InviteStatus};

use crate::arguments::{Paging, word_of};
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::Listed;

/// List the invites of the tenant, oldest first.
///
/// Needs an administrator's session, an API key with the scope `users:read`, or the operator's token together with a
/// tenant.
#[derive(Args)]
pub(crate) struct List {
    /// Only invites in this state.
    #[arg(long, value_name = "STATUS", value_parser = word_of::<InviteStatus>(InviteStatus::ALL.iter().map(|it| it.as_str())))]
    status: Option<InviteStatus>,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::CallerOrPlatformAdmin,
            examples: &[("See who has not accepted yet", "svc invites list --status pending --all")],
            agent_notes: "Without --all or --limit it prints one page, and a warning on standard error when there are more. \
                          Tokens are not listed: nobody can see them again.",
            see_also: &["invites resend", "invites revoke", "users invite", "users list"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::InsufficientScope),
                Failure::Api(ProblemKind::NotFound),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Listed<Invite>>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller_or_platform_admin().await?;
        let filter = [("status", self.status.map(InviteStatus::as_str))];
        let api = context.api()?;
        let part = api.list_part("/users/invites", &filter, self.paging.into(), |call| {
            Ok(call.bearer(&caller.bearer)?.tenant(caller.tenant.as_ref()))
        });
        context.print_part::<Invite>(part.await?)
    }
}
