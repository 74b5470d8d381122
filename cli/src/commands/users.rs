//! `svc users`: users of a tenant. Inviting users is in [`invites`](super::invites).

use clap::Args;
use contract::audit::AuditRecord;
use contract::identity::{PatchUser, User, UserExport};
use contract::{Role, UserStatus, routes};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::UserId;

use super::invites::{AcceptInviteCommand, InviteCommand};
use crate::framework::address::UserRef;
use crate::framework::api::{Api, Paging};
use crate::framework::arguments::{enum_parser, role_parser};
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, ended, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Table, name, text, time, word};

group!(
    /// Manage users.
    Users {
        Invite(InviteCommand),
        AcceptInvite(AcceptInviteCommand),
        List(List),
        Get(Get),
        Export(Export),
        Disable(Disable),
        Enable(Enable),
        SetRole(SetRole),
        ResetFactors(ResetFactors),
        Delete(Delete),
    }
);

/// Maximum number of audit events in an export.
const MAX_AUDIT_EVENTS: u32 = 10_000;
const KEYS_STAY_ACTIVE: &str = "API keys that the user created stay active. To revoke them, run the command again with --revoke-api-keys.";

impl CommandOutput for User {
    fn table(&self) -> Table {
        Table::fields([
            ("user", Some(text(self.user_id))),
            ("email", Some(text(&self.email))),
            ("role", Some(text(self.role))),
            ("status", Some(text(self.status))),
            ("locked", self.locked.then(|| text("yes; ended by `svc users enable` or a password reset"))),
            ("factors locked until", self.factors_locked_until.as_ref().map(time)),
            ("created", Some(time(&self.created_at))),
            ("updated", Some(time(&self.updated_at))),
        ])
    }
}

impl Row for User {
    const EMPTY: &'static str = "No users.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("ID", word(self.user_id)),
            ("EMAIL", name(&self.email)),
            ("ROLE", text(self.role)),
            ("STATUS", text(self.status)),
            ("CREATED", time(&self.created_at)),
        ]
    }
}

/// List users.
///
/// Lists the oldest first. Requires an administrator, an API key with the scope `users:read`, or the platform token and a
/// tenant.
#[derive(Args)]
pub(crate) struct List {
    /// Show only the user with this e-mail address.
    #[arg(long)]
    email: Option<String>,
    /// Show only users with this status.
    #[arg(long, value_parser = enum_parser::<UserStatus>(UserStatus::ALL.iter().map(|it| it.as_str())))]
    status: Option<UserStatus>,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<User>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_USERS]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[
        ("List all users as NDJSON", "svc users list --output ndjson"),
        ("Find the id of a user", "svc users list --email bob@acme.example"),
        ("List the first ten disabled users", "svc users list --status disabled --limit 10"),
    ];
    const AGENT_NOTES: &'static str = "An invited user who has not accepted has the status `invited`.";
    const SEE_ALSO: Names = &["users get", "users invite", "invites list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let filter = [("email", self.email.as_deref()), ("status", self.status.map(UserStatus::as_str))];
        context.connect(Self::REQUIRES).await?.print_list(routes::LIST_USERS.path, &filter, self.paging).await
    }
}

/// Show a user.
///
/// Administrators and API keys with the scope `users:read` can show any user of the tenant; others only themselves. Also shows
/// whether too many failed logins have locked the account, and until when too many wrong codes or passkeys have locked the second
/// factor. `svc users enable` ends both.
#[derive(Args)]
pub(crate) struct Get {
    /// E-mail address or id of the user.
    #[arg(value_name = "USER_ID")]
    user: UserRef,
}

impl Command for Get {
    type Output = User;

    const ROUTES: Routes = Routes::Only(&[&routes::GET_USER, &routes::LIST_USERS]);
    const EXAMPLES: Examples = &[("Show role and status of a user", "svc users get bob@acme.example")];
    const AGENT_NOTES: &'static str = "Exit status 3 means that the user does not exist, belongs to another \
        tenant, or is not visible to you. A member can show only their own user, by id. The platform token needs --tenant. \
        `locked` is true after 100 consecutive failed logins, until the password is reset or an administrator runs \
        `svc users enable`. `factors_locked_until` has a time after 50 wrong codes or passkeys within 24 hours: only recovery \
        codes are accepted until then, or until an administrator runs `svc users enable` or `svc users reset-factors`.";
    const SEE_ALSO: Names = &["users list", "users enable", "users set-role", "users disable"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let user = self.user.id(&api).await?;
        api.call(&routes::GET_USER, &[&user]).fetch().await
    }
}

/// Export all data about a person.
///
/// The account, its invites, sessions and API keys, and at most 10,000 audit events, without credentials. Your own data, or
/// that of any user of the tenant as an administrator. Save it with `--output json`.
#[derive(Args)]
pub(crate) struct Export {
    /// E-mail address or id of the user [default: your own user].
    #[arg(value_name = "USER_ID")]
    user: Option<UserRef>,
}

/// All stored data about a person.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PersonExport {
    #[serde(flatten)]
    account: UserExport,
    /// Audit events that the user caused or is affected by, oldest first.
    audit_events: Vec<AuditRecord>,
}

impl CommandOutput for PersonExport {
    fn table(&self) -> Table {
        let UserExport { tenant_id, user, factors, invites, sessions, api_keys } = &self.account;
        Table::fields([
            ("tenant", Some(text(tenant_id))),
            ("user", Some(text(user.user_id))),
            ("email", Some(text(&user.email))),
            ("role", Some(text(user.role))),
            ("status", Some(text(user.status))),
            ("created", Some(time(&user.created_at))),
            ("updated", Some(time(&user.updated_at))),
            ("second factors", Some(text(factors.len()))),
            ("invites", Some(text(invites.len()))),
            ("sessions", Some(text(sessions.len()))),
            ("API keys", Some(text(api_keys.len()))),
            ("audit events", Some(text(self.audit_events.len()))),
        ])
    }
}

impl Command for Export {
    type Output = PersonExport;

    const ROUTES: Routes =
        Routes::Only(&[&routes::EXPORT_USER, &routes::LIST_AUDIT, &routes::LIST_USERS, &routes::WHOAMI]);
    const EXAMPLES: Examples = &[
        ("Save your own data", "svc users export --output json"),
        ("Save the data of a user as an administrator", "svc users export bob@acme.example --output json"),
    ];
    const AGENT_NOTES: &'static str = "The output is personal data: write it only where the user asked for it. The \
        table shows numbers only; JSON has all data. Events that the user sent are not included.";
    const SEE_ALSO: Names = &["users get", "users delete", "audit list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let user = match self.user {
            Some(user) => user.id(&api).await?,
            None => api.owner().await?.user,
        };
        let account = api.call(&routes::EXPORT_USER, &[&user]).fetch().await?;
        let (path, user_id) = (routes::LIST_AUDIT.path, user.to_string());
        let filter = [("user_id", Some(&*user_id))];
        let audit_events = api.list(path, &filter, Some(MAX_AUDIT_EVENTS)).await?;
        if audit_events.len() >= MAX_AUDIT_EVENTS as usize {
            context
                .out()
                .warn("the export has the first 10,000 audit events; `svc audit list` has the others");
        }
        Ok(PersonExport { account, audit_events })
    }
}

/// Disable a user.
///
/// Revokes the user's sessions. The user cannot log in until enabled. Requires an administrator, for another administrator with a login
/// in the last ten minutes, or the platform token and a tenant. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Disable {
    /// E-mail address or id of the user.
    #[arg(value_name = "USER_ID")]
    user: UserRef,
    /// Revoke the API keys that the user created.
    #[arg(long)]
    revoke_api_keys: bool,
}

impl Command for Disable {
    type Output = User;

    const ROUTES: Routes = Routes::Only(&[&routes::UPDATE_USER, &routes::LIST_USERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Disable a user after confirmation", "svc users disable bob@acme.example"),
        ("Disable a user in a script", "svc users disable bob@acme.example --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires --yes without a terminal; pass it only if the user asked \
        for this change. Idempotent. The last active administrator cannot be disabled. API keys that the \
        user created stay active without --revoke-api-keys; pass it only if the user asked for it: programs that \
        use the keys stop working.";
    const SEE_ALSO: Names = &["users enable", "users list", "auth sessions revoke"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        let user = self.user.resolve(prompt, &api).await?;
        prompt.confirm(&format!("Disable {user} and revoke all sessions of the user?")).await?;
        let status = Some(UserStatus::Disabled);
        let patch = PatchUser { status, revoke_api_keys: self.revoke_api_keys, ..PatchUser::default() };
        let user = update(&api, user.id, &patch).await?;
        if !self.revoke_api_keys {
            context.notice_later(KEYS_STAY_ACTIVE);
        }
        Ok(user)
    }
}

/// Enable a user.
///
/// Enables a disabled user, and ends the lockout after too many failed logins and the lock of the second factor after too many
/// wrong codes. Requires an administrator, for a disabled user or an administrator with a login in the last ten minutes, or the platform
/// token and a tenant.
#[derive(Args)]
pub(crate) struct Enable {
    /// E-mail address or id of the user.
    #[arg(value_name = "USER_ID")]
    user: UserRef,
}

impl Command for Enable {
    type Output = User;

    const ROUTES: Routes = Routes::Only(&[&routes::UPDATE_USER, &routes::LIST_USERS]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[("Enable a user", "svc users enable bob@acme.example")];
    const AGENT_NOTES: &'static str = "Also ends a lockout and a lock of the second factor. The password \
        and the factors do not change, and revoked sessions stay revoked. \
        Idempotent. A user who has not accepted the invite cannot be enabled.";
    const SEE_ALSO: Names = &["users disable", "users list", "auth password reset"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let patch = PatchUser { status: Some(UserStatus::Active), ..PatchUser::default() };
        let api = context.connect(Self::REQUIRES).await?;
        let user = self.user.id(&api).await?;
        update(&api, user, &patch).await
    }
}

/// Change a user's role.
///
/// Requires an administrator who logged in with the password or a passkey in the last ten minutes. Asks for confirmation of
/// --revoke-api-keys.
#[derive(Args)]
pub(crate) struct SetRole {
    /// E-mail address or id of the user.
    #[arg(value_name = "USER_ID")]
    user: UserRef,
    /// New role.
    #[arg(value_parser = role_parser())]
    role: Role,
    /// Revoke the API keys that the user created, and the sessions of the user.
    #[arg(long)]
    revoke_api_keys: bool,
}

impl Command for SetRole {
    type Output = User;

    const REQUIRES: Requirement = Requirement::Session;
    const ROUTES: Routes = Routes::Only(&[&routes::UPDATE_USER, &routes::LIST_USERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Make a user an administrator", "svc users set-role bob@acme.example admin"),
        ("Make an administrator a member", "svc users set-role bob@acme.example member"),
    ];
    const AGENT_NOTES: &'static str = "Applies to active sessions of the user too. If the tenant requires a second factor of \
        administrators, a new one must log in again. An administrator has full access to the tenant: grant the role only if the user \
        asked for it. The role of the last active administrator cannot be changed. The platform token cannot change roles. \
        --revoke-api-keys requires --yes without a terminal.";
    const SEE_ALSO: Names = &["users list", "users get", "users invite"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let role = Some(self.role);
        let patch = PatchUser { role, revoke_api_keys: self.revoke_api_keys, ..PatchUser::default() };
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        let user = if self.revoke_api_keys {
            let user = self.user.resolve(prompt, &api).await?;
            let question = format!("Revoke the sessions of {user}, and the API keys that the user created?");
            prompt.confirm(&question).await?;
            user.id
        } else {
            self.user.id(&api).await?
        };
        let user = update(&api, user, &patch).await?;
        if self.role == Role::Member && !self.revoke_api_keys {
            context.notice_later(KEYS_STAY_ACTIVE);
        }
        Ok(user)
    }
}

/// Remove the second factors of a user.
///
/// For a person who has lost them. The person then logs in with the password alone. The person and the administrators get a mail.
/// Requires an administrator with a login in the last ten minutes, or the platform token and a tenant. Asks for confirmation.
#[derive(Args)]
pub(crate) struct ResetFactors {
    /// E-mail address or id of the user.
    #[arg(value_name = "USER_ID")]
    user: UserRef,
}

ended!(
    /// Result of removing the factors.
    ResetUser {
        /// Id of the user.
        user_id: UserId,
        reset,
        /// E-mail address, if it was typed or looked up.
        email
    }: "The user has no second factor any more."
);

impl Command for ResetFactors {
    type Output = ResetUser;

    const ROUTES: Routes = Routes::Only(&[&routes::RESET_FACTORS, &routes::LIST_USERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples =
        &[("Remove the factors after confirmation", "svc users reset-factors bob@acme.example")];
    const AGENT_NOTES: &'static str = "Makes the account less secure. Check that the request comes from the person: the \
        password alone is enough to log in afterwards. Requires --yes without a terminal; pass it only if the user asked for this \
        change. Idempotent.";
    const SEE_ALSO: Names = &["users list", "auth factors list", "auth password reset"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        let user = self.user.resolve(prompt, &api).await?;
        prompt.confirm(&format!("Remove the second factors of {user}?")).await?;
        api.call(&routes::RESET_FACTORS, &[&user.id]).execute().await?;
        Ok(ResetUser::new(user.id, user.label))
    }
}

/// Delete a user and erase the personal data.
///
/// Revokes the sessions of the user and the API keys that the user created. Cannot be undone; the address can be invited
/// again. Requires an administrator who logged in with the password or a passkey in the last ten minutes. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Delete {
    /// E-mail address or id of the user.
    #[arg(value_name = "USER_ID")]
    user: UserRef,
}

ended!(
    /// Result of deleting a user.
    DeletedUser {
        /// Id of the user.
        user_id: UserId,
        deleted,
        /// E-mail address, if it was typed or looked up.
        email
    }: "User deleted."
);

impl Command for Delete {
    type Output = DeletedUser;

    const ROUTES: Routes = Routes::Only(&[&routes::DELETE_USER, &routes::LIST_USERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Delete a user after confirmation", "svc users delete bob@acme.example"),
        ("Delete a user in a script", "svc users delete bob@acme.example --yes"),
    ];
    const AGENT_NOTES: &'static str = "Cannot be undone. Requires --yes without a terminal; pass it only if the \
        user asked to delete this person. To block a login, use `svc users disable`. Programs with API keys that \
        the user created stop working. The last active administrator cannot be deleted. With an id, idempotent.";
    const SEE_ALSO: Names = &["users disable", "users list", "invites revoke"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        let user = self.user.resolve(prompt, &api).await?;
        let question = format!(
            "Delete {user} for good, erase the personal data and revoke the API keys that the user created?"
        );
        prompt.confirm(&question).await?;
        api.call(&routes::DELETE_USER, &[&user.id]).execute().await?;
        Ok(DeletedUser::new(user.id, user.label))
    }
}

/// Changes a user.
async fn update(api: &Api, user: UserId, patch: &PatchUser) -> Result<User> {
    api.call(&routes::UPDATE_USER, &[&user]).json(patch)?.fetch().await
}
