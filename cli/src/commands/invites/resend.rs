//! `svc invites resend`

use clap::Args;
use contract::ProblemKind;
use contract::identity::{Delivery, Invite};
use reqwest::Method;
use serde_json::json;
use tenancy::InviteId;

use super::print;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::commands::users::DeliveryArgument;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Send a pending invite again, with a new token and a new term; the old token no longer works.
///
/// Needs an administrator's session, an API key with the scope `users:write`, or the operator's token together with a
/// tenant.
#[derive(Args)]
pub(crate) struct Resend {
    /// Id of the invite.
    #[arg(value_name = "INVITE_ID")]
    invite_id: InviteId,
    /// How the invite reaches them: by mail, or as a token in the answer for you to hand over.
    #[arg(long, value_name = "HOW", default_value = "email")]
    delivery: DeliveryArgument,
}

impl Command for Resend {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::CallerOrPlatformAdmin,
            examples: &[
                ("Send the mail again", "svc invites resend 01890a5d-ac96-774b-bcce-b302099a8057"),
                (
                    "Get a new token to hand over",
                    "svc invites resend 01890a5d-ac96-774b-bcce-b302099a8057 --delivery response",
                ),
            ],
            agent_notes: "Each run kills the token before. An invite that has expired or was revoked is over, and answered \
                          with exit status 3: invite the person again. With --delivery response the output holds a \
                          credential, shown only this once.",
            see_also: &["invites list", "invites revoke", "users invite"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::InsufficientScope),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::UserExists),
                Failure::Api(ProblemKind::MailUnavailable),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Invite>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller_or_platform_admin().await?;
        let api = context.api()?;
        let path = format!("/users/invites/{}/resend", self.invite_id);
        let call = api.call(Method::POST, &path).bearer(&caller.bearer)?.tenant(caller.tenant.as_ref());
        let how = json!({"delivery": Delivery::from(self.delivery)});
        let invite: Invite = call.json(&how)?.fetch().await?;
        print(context, &invite)
    }
}
