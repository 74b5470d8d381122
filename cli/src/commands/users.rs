//! `svc users`: users of a tenant. Inviting users is in [`invites`](super::invites).

use clap::Args;
use contract::identity::{PatchUser, User};
use contract::{UserStatus, routes};
use tenancy::UserId;

use super::invites::{AcceptInviteCommand, InviteCommand};
use crate::arguments::{Paging, RoleArgument, enum_parser};
use crate::catalog::{HelpGroup, Overlay, Requirement, Routes, schema_of};
use crate::commands::{Command, group};
use crate::context::{ActiveCredential, Context};
use crate::error::{ErrorKind, Result};
use crate::output::{CommandOutput, ItemList, Row, Table, time};

group!(
    /// Manage users.
    Users {
        Invite(InviteCommand),
        AcceptInvite(AcceptInviteCommand),
        List(List),
        Get(Get),
        Disable(Disable),
        Enable(Enable),
        SetRole(SetRole),
    }
);

impl CommandOutput for User {
    fn table(&self) -> Table {
        Table::fields([
            ("user", Some(self.user_id.to_string())),
            ("email", Some(self.email.clone())),
            ("role", Some(self.role.to_string())),
            ("status", Some(self.status.to_string())),
            ("created", Some(time(&self.created_at))),
            ("updated", Some(time(&self.updated_at))),
        ])
    }
}

impl Row for User {
    const HEADINGS: &'static [&'static str] = &["ID", "EMAIL", "ROLE", "STATUS", "CREATED"];
    const EMPTY: &'static str = "No users.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.user_id.to_string(),
            self.email.clone(),
            self.role.to_string(),
            self.status.to_string(),
            time(&self.created_at),
        ]
    }
}

/// List users.
///
/// Lists the oldest first. Requires an administrator, or an API key with the scope `users:read`.
#[derive(Args)]
pub(crate) struct List {
    /// Show only the user with this e-mail address.
    #[arg(long, value_name = "EMAIL")]
    email: Option<String>,
    /// Show only users with this status.
    #[arg(long, value_name = "STATUS", value_parser = enum_parser::<UserStatus>(UserStatus::ALL.iter().map(|it| it.as_str())))]
    status: Option<UserStatus>,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Identity,
        requires: Requirement::Credential,
        routes: Routes::Only(&[&routes::LIST_USERS]),
        errors: &[],
        examples: &[
            ("List all users as NDJSON", "svc users list --all --output ndjson"),
            ("Find the id of a user", "svc users list --email bob@acme.example"),
            ("List the first ten disabled users", "svc users list --status disabled --limit 10"),
        ],
        agent_notes: "Without --all or --limit, prints one page and warns on stderr if there are more items. An invited \
                      user who has not accepted has the status `invited`.",
        see_also: &["users get", "users invite", "invites list"],
        input_schema: None,
        output_schema: Some(schema_of::<ItemList<User>>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let (credential, api) = (context.credential()?, context.api()?);
        let filter = [("email", self.email.as_deref()), ("status", self.status.map(UserStatus::as_str))];
        let list = api
            .list(&routes::LIST_USERS, &filter, self.paging.into(), |call| call.authenticated(&credential))
            .await?;
        context.print_list::<User>(list)
    }
}

/// Show a user.
///
/// Administrators and API keys with the scope `users:read` can show any user of the tenant; others only themselves.
#[derive(Args)]
pub(crate) struct Get {
    /// User id.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
}

impl Command for Get {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Identity,
        requires: Requirement::Credential,
        routes: Routes::Only(&[&routes::GET_USER]),
        errors: &[],
        examples: &[("Show role and status of a user", "svc users get 01890a5d-ac96-774b-bcce-b302099a8057")],
        agent_notes: "Exit status 3 means that the user does not exist, belongs to another tenant, or is not visible to \
                      you. To find an id by e-mail address, run `users list --email`.",
        see_also: &["users list", "users set-role", "users disable"],
        input_schema: None,
        output_schema: Some(schema_of::<User>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let (credential, api) = (context.credential()?, context.api()?);
        let call = api.call(&routes::GET_USER, &[&self.user_id]).authenticated(&credential)?;
        let user: User = call.fetch().await?;
        context.out().print(&user)
    }
}

/// Disable a user.
///
/// Revokes the user's sessions immediately. The user cannot log in until enabled. Requires an administrator, or the
/// platform token and a tenant. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Disable {
    /// User id.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
}

impl Command for Disable {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Identity,
        requires: Requirement::CredentialOrPlatformToken,
        routes: Routes::Only(&[&routes::UPDATE_USER]),
        errors: ErrorKind::CONFIRMATION,
        examples: &[
            ("Disable a user after confirmation", "svc users disable 01890a5d-ac96-774b-bcce-b302099a8057"),
            ("Disable a user in a script", "svc users disable 01890a5d-ac96-774b-bcce-b302099a8057 --yes"),
        ],
        agent_notes: "Requires --yes without a terminal; pass it only if the user asked for this change. Idempotent. The \
                      last active administrator cannot be disabled. API keys belong to the tenant and stay active.",
        see_also: &["users enable", "users list", "auth sessions revoke"],
        input_schema: None,
        output_schema: Some(schema_of::<User>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let credential = context.credential_or_platform_token().await?;
        let question = format!("Disable user {} and revoke all sessions of the user?", self.user_id);
        context.prompt().confirm(&question).await?;
        let patch = PatchUser { status: Some(UserStatus::Disabled), ..PatchUser::default() };
        update(context, &credential, self.user_id, &patch).await
    }
}

/// Enable a user.
///
/// Enables a disabled user, and ends the lockout after too many failed logins. Requires an administrator, or the platform
/// token and a tenant.
#[derive(Args)]
pub(crate) struct Enable {
    /// User id.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
}

impl Command for Enable {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Identity,
        requires: Requirement::CredentialOrPlatformToken,
        routes: Routes::Only(&[&routes::UPDATE_USER]),
        errors: ErrorKind::PROMPT,
        examples: &[("Enable a user", "svc users enable 01890a5d-ac96-774b-bcce-b302099a8057")],
        agent_notes: "Also ends a lockout. The password does not change, and revoked sessions stay revoked. Idempotent. \
                      A user who has not accepted the invite cannot be enabled.",
        see_also: &["users disable", "users list", "auth password reset"],
        input_schema: None,
        output_schema: Some(schema_of::<User>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let credential = context.credential_or_platform_token().await?;
        let patch = PatchUser { status: Some(UserStatus::Active), ..PatchUser::default() };
        update(context, &credential, self.user_id, &patch).await
    }
}

/// Change a user's role.
///
/// Requires a session of an administrator.
#[derive(Args)]
pub(crate) struct SetRole {
    /// User id.
    #[arg(value_name = "USER_ID")]
    user_id: UserId,
    /// New role.
    #[arg(value_name = "ROLE")]
    role: RoleArgument,
}

impl Command for SetRole {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Identity,
        requires: Requirement::Session,
        routes: Routes::Only(&[&routes::UPDATE_USER]),
        errors: &[],
        examples: &[
            ("Make a user an administrator", "svc users set-role 01890a5d-ac96-774b-bcce-b302099a8057 admin"),
            (
                "Make an administrator a member",
                "svc users set-role 01890a5d-ac96-774b-bcce-b302099a8057 member",
            ),
        ],
        agent_notes: "Applies to active sessions of the user too. An administrator has full access to the tenant: grant \
                      the role only if the user asked for it. The role of the last active administrator cannot be \
                      changed. The platform token cannot change roles.",
        see_also: &["users list", "users get", "users invite"],
        input_schema: None,
        output_schema: Some(schema_of::<User>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let credential = context.session()?;
        let patch = PatchUser { role: Some(self.role.into()), ..PatchUser::default() };
        update(context, &credential, self.user_id, &patch).await
    }
}

/// Changes a user and prints the result.
async fn update(
    context: &Context,
    credential: &ActiveCredential,
    user: UserId,
    patch: &PatchUser,
) -> Result<()> {
    let api = context.api()?;
    let call = api.call(&routes::UPDATE_USER, &[&user]).authenticated(credential)?;
    let user: User = call.json(patch)?.fetch().await?;
    context.out().print(&user)
}
