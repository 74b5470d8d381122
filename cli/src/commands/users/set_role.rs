//! `svc users set-role`

use clap::Args;
use contract::ProblemKind;
use contract::identity::{PatchUser, User};
use tenancy::UserId;

use super::invite::RoleArgument;
use super::patch;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;

/// Say what a user may do: `member` or `admin`. Needs an administrator's session.
#[derive(Args)]
pub(crate) struct SetRole {
    /// Id of the user.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
    /// What they may do from now on: `member` or `admin`.
    #[arg(value_name = "ROLE")]
    role: RoleArgument,
}

impl Command for SetRole {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                (
                    "Make a user an administrator",
                    "svc users set-role 01890a5d-ac96-774b-bcce-b302099a8057 admin",
                ),
                (
                    "Make an administrator a member",
                    "svc users set-role 01890a5d-ac96-774b-bcce-b302099a8057 member",
                ),
            ],
            agent_notes: "Takes effect on the user's live sessions too. An administrator may do everything in the tenant: \
                          give the role only when the person you work for wants it. The last active administrator keeps \
                          it. The operator's token does not do.",
            see_also: &["users list", "users get", "users invite"],
            errors: &[
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
        let caller = context.session()?;
        let role = PatchUser { role: Some(self.role.into()), ..PatchUser::default() };
        patch(context, &caller, self.user_id, &role).await
    }
}
