//! `svc users invite`

use clap::{Args, ValueEnum};
use contract::identity::{Delivery, Invite, InviteUser};
use contract::{ProblemKind, Role};
use reqwest::Method;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::commands::invites::print;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Invite a user into a tenant.
///
/// The person gets a link by mail and chooses a password. Needs an administrator's session, an API key with the scope
/// `users:write` (members only, by mail only), or the operator's token together with a tenant.
#[derive(Args)]
pub(crate) struct InviteCommand {
    /// AccountRef to invite.
    #[arg(long, value_name = "EMAIL")]
    email: String,
    /// What they may do.
    #[arg(long, value_name = "ROLE", default_value = "member")]
    role: RoleArgument,
    /// How the invite reaches them: by mail, or as a token in the answer for you to hand over.
    #[arg(long, value_name = "HOW", default_value = "email")]
    delivery: DeliveryArgument,
}

/// `--role`.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum RoleArgument {
    /// Own profile, sessions and password; sends events.
    Member,
    /// All of the tenant.
    Admin,
}

/// `--delivery`.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum DeliveryArgument {
    /// By mail; the answer holds no token.
    Email,
    /// In the answer; no mail is sent.
    Response,
}

impl From<RoleArgument> for Role {
    fn from(role: RoleArgument) -> Self {
        match role {
            RoleArgument::Member => Self::Member,
            RoleArgument::Admin => Self::Admin,
        }
    }
}

impl From<DeliveryArgument> for Delivery {
    fn from(delivery: DeliveryArgument) -> Self {
        match delivery {
            DeliveryArgument::Email => Self::Email,
            DeliveryArgument::Response => Self::Response,
        }
    }
}

impl Command for InviteCommand {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::CallerOrPlatformAdmin,
            examples: &[
                ("Invite a member by mail", "svc users invite --email bob@acme.example --tenant acme"),
                (
                    "Invite an administrator, and get the token to hand over",
                    "svc users invite --email bob@acme.example --tenant acme --role admin --delivery response",
                ),
            ],
            agent_notes: "Not to be repeated blindly: a second invite of a pending one is refused with invite_pending. With \
                          --delivery response the output holds a credential, shown only this once. Where \
                          SVC_PLATFORM_TOKEN is set and neither SVC_TOKEN nor SVC_API_KEY is, the operator invites.",
            see_also: &["users accept-invite", "invites list", "invites resend", "tenants create"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::InsufficientScope),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::UserExists),
                Failure::Api(ProblemKind::InvitePending),
                Failure::Api(ProblemKind::MailUnavailable),
                Failure::Api(ProblemKind::ValidationFailed),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Invite>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller_or_platform_admin().await?;
        let invite = InviteUser { email: self.email, role: self.role.into(), delivery: self.delivery.into() };
        let api = context.api()?;
        let call = api.call(Method::POST, "/users/invite").bearer(&caller.bearer)?;
        let invite: Invite = call.tenant(caller.tenant.as_ref()).json(&invite)?.fetch().await?;
        print(context, &invite)
    }
}
