//! `svc users enable`

use clap::Args;
use contract::identity::{PatchUser, User};
use contract::{ProblemKind, UserStatus};
use tenancy::UserId;

use super::patch;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Let a user log in again: one that was disabled, or that is locked out after too many wrong passwords.
///
/// Needs an administrator's session, or the operator's token together with a tenant.
#[derive(Args)]
pub(crate) struct Enable {
    /// Id of the user.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
}

impl Command for Enable {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::CallerOrPlatformAdmin,
            examples: &[("Enable a user", "svc users enable 01890a5d-ac96-774b-bcce-b302099a8057")],
            agent_notes: "The password stays as it was, and sessions that ended stay ended. It also ends a \
                          lock-out after too many failed logins. Repeating it changes nothing. Who has not accepted the \
                          invite yet cannot be enabled.",
            see_also: &["users disable", "users list", "auth password reset"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::UserInvited),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<User>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller_or_platform_admin().await?;
        let active = PatchUser { status: Some(UserStatus::Active), ..PatchUser::default() };
        patch(context, &caller, self.user_id, &active).await
    }
}
