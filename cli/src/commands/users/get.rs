//! `svc users get`

use clap::Args;
use contract::ProblemKind;
use contract::identity::User;
use reqwest::Method;
use tenancy::UserId;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;

/// See one user: yourself, or anybody of the tenant as an administrator or with an API key of the scope `users:read`.
#[derive(Args)]
pub(crate) struct Get {
    /// Id of the user.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
}

impl Command for Get {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Caller,
            examples: &[(
                "See what a user may do, and whether they are active",
                "svc users get 01890a5d-ac96-774b-bcce-b302099a8057",
            )],
            agent_notes: "Exit status 3 when there is no such user, when they belong to another tenant, and when you may \
                          not see them: the answer is the same. Where only the address is known, `users list --email` \
                          finds the id.",
            see_also: &["users list", "users set-role", "users disable"],
            errors: &[Failure::Api(ProblemKind::NotFound)],
            input_schema: None,
            output_schema: Some(schema_of::<User>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller()?;
        let api = context.api()?;
        let call = api.call(Method::GET, &format!("/users/{}", self.user_id)).bearer(&caller.bearer)?;
        let user: User = call.tenant(caller.tenant.as_ref()).fetch().await?;
        context.out().print(&user)
    }
}
