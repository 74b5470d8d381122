//! `svc users disable`

use clap::Args;
use contract::identity::{PatchUser, User};
use contract::{ProblemKind, UserStatus};
use tenancy::UserId;

use super::patch;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Shut a user out: their sessions end at once, and they cannot log in until they are enabled.
///
/// Needs an administrator's session, or the operator's token together with a tenant. Asks before it acts.
#[derive(Args)]
pub(crate) struct Disable {
    /// Id of the user.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
}

impl Command for Disable {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::CallerOrPlatformAdmin,
            examples: &[
                (
                    "Disable a user, and be asked first",
                    "svc users disable 01890a5d-ac96-774b-bcce-b302099a8057",
                ),
                ("The same from a script", "svc users disable 01890a5d-ac96-774b-bcce-b302099a8057 --yes"),
            ],
            agent_notes: "Needs --yes where nobody can be asked; pass it only when the person you work for wants it. \
                          Repeating it changes nothing. The last active administrator cannot be disabled. API keys are \
                          the tenant's, not the user's: they live on.",
            see_also: &["users enable", "users list", "auth sessions revoke"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::Declined),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::LastAdmin),
                Failure::Api(ProblemKind::UserInvited),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<User>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller_or_platform_admin().await?;
        let question = format!("Disable user {} and end their sessions?", self.user_id);
        context.prompt().confirm(&question).await?;
        let disabled = PatchUser { status: Some(UserStatus::Disabled), ..PatchUser::default() };
        patch(context, &caller, self.user_id, &disabled).await
    }
}
