//! `svc tenants`: tenants, managed by the platform administrator.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, ArgGroup, Args};
use contract::identity::{
    CreateTenant, Delivery, MAX_PASSWORD_MIN_LENGTH, MAX_QUOTA, PatchTenant, Quota, SecondFactorPolicy,
    Tenant,
};
use contract::{TenantStatus, routes};
use tenancy::TenantId;

use crate::framework::api::{Api, Paging};
use crate::framework::arguments::{delivery_parser, enum_parser, up_to};
use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::{Command, ended, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Table, text, time};

group!(
    /// Manage tenants as the platform administrator.
    Tenants {
        Create(Create),
        List(List),
        Get(Get),
        Update(Update),
        Suspend(Suspend),
        Resume(Resume),
        Delete(Delete),
    }
);

impl CommandOutput for Tenant {
    fn table(&self) -> Table {
        let limit = |limit: Option<u32>| Some(limit.map_or_else(|| text("default"), text));
        let invite = self.invite.as_ref();
        Table::fields([
            ("tenant", Some(text(&self.tenant_id))),
            ("name", Some(text(&self.display_name))),
            ("status", Some(text(self.status))),
            ("events per second", limit(self.quota.events_per_second)),
            ("bytes per second", limit(self.quota.bytes_per_second)),
            ("second factor", Some(text(self.second_factor))),
            ("minimum password length", Some(text(self.password_min_length))),
            ("passkey login", Some(text(if self.passkey_login { "on" } else { "off" }))),
            ("created", Some(time(&self.created_at))),
            ("administrator", invite.map(|invite| text(&invite.email))),
            ("invite expires", invite.map(|invite| time(&invite.expires_at))),
            ("invite token", invite.and_then(|invite| Some(text(invite.token.as_ref()?.expose())))),
        ])
    }
}

impl Row for Tenant {
    const EMPTY: &'static str = "No tenants.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("TENANT", text(&self.tenant_id)),
            ("NAME", text(&self.display_name)),
            ("STATUS", text(self.status)),
            ("CREATED", time(&self.created_at)),
        ]
    }
}

/// Create a tenant and invite its first administrator.
#[derive(Args)]
pub(crate) struct Create {
    /// Tenant id: 1 to 63 characters of a-z, 0-9 and `-`. Cannot be changed later.
    tenant_id: TenantId,
    /// Display name [default: the tenant id].
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    /// E-mail address of the first administrator.
    #[arg(long, value_name = "EMAIL")]
    admin_email: Option<String>,
    /// How to deliver the administrator's invite token.
    #[arg(long, value_name = "HOW", default_value = "email", requires = "admin_email", value_parser = delivery_parser())]
    delivery: Delivery,
    /// Quota of events per second [default: that of the installation].
    #[arg(long, value_name = "COUNT", value_parser = up_to(MAX_QUOTA))]
    events_per_second: Option<u32>,
    /// Quota of bytes of events per second, before compression [default: that of the installation].
    #[arg(long, value_name = "BYTES", value_parser = up_to(MAX_QUOTA))]
    bytes_per_second: Option<u32>,
    /// Users who must have a second factor.
    #[arg(long, value_name = "USERS", default_value = "optional", value_parser = policy_parser())]
    second_factor: SecondFactorPolicy,
    /// Minimum number of characters of a new password, at least that of the installation [default: that of the installation].
    #[arg(long, value_name = "CHARACTERS", value_parser = up_to(MAX_PASSWORD_MIN_LENGTH))]
    password_min_length: Option<u32>,
    /// Whether users can log in with a passkey alone.
    #[arg(long, value_name = "STATE", default_value = "on", action = ArgAction::Set, value_parser = switch_parser())]
    passkey_login: bool,
}

impl Command for Create {
    type Output = Tenant;

    const ROUTES: Routes = Routes::Only(&[&routes::CREATE_TENANT]);
    const EXAMPLES: Examples = &[(
        "Create a tenant and print the administrator's invite token",
        "svc tenants create acme --display-name \"Acme Ltd\" --admin-email ada@acme.example --delivery response",
    )];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc tenants get` with the id. If the tenant exists, it was created: `svc invites list \
        --tenant` shows the invite of the administrator, and `svc invites resend` issues a new token.",
    );
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE; sessions are \
        not accepted. With --delivery response, the output contains a credential that is shown only once.";
    const SEE_ALSO: Names = &["tenants get", "tenants update", "users accept-invite", "users invite"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let limited = self.events_per_second.is_some() || self.bytes_per_second.is_some();
        let quota =
            Quota { events_per_second: self.events_per_second, bytes_per_second: self.bytes_per_second };
        let request = CreateTenant {
            display_name: self.display_name.unwrap_or_else(|| self.tenant_id.to_string()),
            tenant_id: self.tenant_id,
            admin_email: self.admin_email,
            delivery: self.delivery,
            quota: limited.then_some(quota),
            second_factor: self.second_factor,
            password_min_length: self.password_min_length,
            passkey_login: Some(self.passkey_login),
        };
        api.call(&routes::CREATE_TENANT, &[]).json(&request)?.fetch().await
    }
}

/// List all tenants.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<Tenant>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_TENANTS]);
    const EXAMPLES: Examples = &[("List all tenants as NDJSON", "svc tenants list --output ndjson")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE.";
    const SEE_ALSO: Names = &["tenants get", "tenants create"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        context.connect(Self::REQUIRES).await?.print_list(routes::LIST_TENANTS.path, &[], self.paging).await
    }
}

/// Show a tenant.
#[derive(Args)]
pub(crate) struct Get {
    /// Tenant id.
    tenant_id: TenantId,
}

impl Command for Get {
    type Output = Tenant;

    const ROUTES: Routes = Routes::Only(&[&routes::GET_TENANT]);
    const EXAMPLES: Examples = &[("Show status and quota of a tenant", "svc tenants get acme")];
    const AGENT_NOTES: &'static str = "A session shows the own tenant, SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE \
        any tenant. Exit status 3 means that the tenant does not exist.";
    const SEE_ALSO: Names = &["tenants list", "tenants create", "tenants update", "tenants suspend"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        context.connect(Self::REQUIRES).await?.call(&routes::GET_TENANT, &[&self.tenant_id]).fetch().await
    }
}

/// Rename a tenant, or change its quota or its rules for logins.
///
/// Options that are absent are unchanged. Events above a quota are rejected with `quota_exceeded`, which is retryable. A user who must
/// have a second factor and has none sets one up at the next login. Sessions and passwords stay valid.
#[derive(Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct Update {
    /// Tenant id.
    tenant_id: TenantId,
    /// New display name.
    #[arg(long, value_name = "NAME", group = "change")]
    display_name: Option<String>,
    /// New quota of events per second, or `default` for that of the installation.
    #[arg(long, value_name = "COUNT", group = "change", value_parser = parse_new_limit)]
    events_per_second: Option<NewLimit>,
    /// New quota of bytes of events per second, before compression, or `default` for that of the installation.
    #[arg(long, value_name = "BYTES", group = "change", value_parser = parse_new_limit)]
    bytes_per_second: Option<NewLimit>,
    /// Users who must have a second factor.
    #[arg(long, value_name = "USERS", group = "change", value_parser = policy_parser())]
    second_factor: Option<SecondFactorPolicy>,
    /// New minimum number of characters of a new password, at least that of the installation.
    #[arg(long, value_name = "CHARACTERS", group = "change", value_parser = up_to(MAX_PASSWORD_MIN_LENGTH))]
    password_min_length: Option<u32>,
    /// Whether users can log in with a passkey alone.
    #[arg(long, value_name = "STATE", group = "change", value_parser = switch_parser())]
    passkey_login: Option<bool>,
}

/// A new limit of a quota; `None` removes it.
#[derive(Clone, Copy)]
struct NewLimit(Option<u32>);

fn parse_new_limit(text: &str) -> std::result::Result<NewLimit, String> {
    if text == "default" {
        return Ok(NewLimit(None));
    }
    match text.parse() {
        Ok(limit @ 1..=MAX_QUOTA) => Ok(NewLimit(Some(limit))),
        _ => Err(format!("must be 1 to {MAX_QUOTA}, or default")),
    }
}

fn policy_parser() -> impl TypedValueParser<Value = SecondFactorPolicy> {
    enum_parser([
        PossibleValue::new("optional").help("No users: each one decides"),
        PossibleValue::new("administrators").help("The administrators"),
        PossibleValue::new("everyone").help("All users"),
    ])
}

fn switch_parser() -> impl TypedValueParser<Value = bool> {
    let values = [
        PossibleValue::new("on").help("A passkey is a login, or a second factor"),
        PossibleValue::new("off").help("A passkey is only a second factor"),
    ];
    PossibleValuesParser::new(values).map(|value| value == "on")
}

impl Command for Update {
    type Output = Tenant;

    const ROUTES: Routes = Routes::Only(&[&routes::UPDATE_TENANT, &routes::GET_TENANT]);
    const EXAMPLES: Examples = &[
        (
            "Set the quota of a tenant",
            "svc tenants update acme --events-per-second 500 --bytes-per-second 1000000",
        ),
        ("Remove a quota", "svc tenants update acme --events-per-second default"),
        (
            "Require a second factor of administrators",
            "svc tenants update acme --second-factor administrators",
        ),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Reads the \
        quota before it changes one of its limits. A new quota applies within seconds. Idempotent.";
    const SEE_ALSO: Names = &["tenants get", "tenants suspend"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let mut patch = PatchTenant {
            display_name: self.display_name,
            second_factor: self.second_factor,
            password_min_length: self.password_min_length,
            passkey_login: self.passkey_login,
            ..PatchTenant::default()
        };
        if self.events_per_second.is_some() || self.bytes_per_second.is_some() {
            // The API replaces the quota as a whole.
            let Tenant { quota, .. } = api.call(&routes::GET_TENANT, &[&self.tenant_id]).fetch().await?;
            let limit = |new: Option<NewLimit>, old| new.map_or(old, |NewLimit(limit)| limit);
            patch.quota = Some(Quota {
                events_per_second: limit(self.events_per_second, quota.events_per_second),
                bytes_per_second: limit(self.bytes_per_second, quota.bytes_per_second),
            });
        }
        api.call(&routes::UPDATE_TENANT, &[&self.tenant_id]).json(&patch)?.fetch().await
    }
}

/// Suspend a tenant.
///
/// Revokes all sessions of the tenant and rejects its API keys until it is resumed. Consumers of the broker still read its stored
/// events: to stop one, run `svc consumers pause`. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Suspend {
    /// Tenant id.
    tenant_id: TenantId,
}

impl Command for Suspend {
    type Output = Tenant;

    const ROUTES: Routes = Routes::Only(&[&routes::UPDATE_TENANT, &routes::GET_TENANT]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Suspend a tenant after confirmation", "svc tenants suspend acme"),
        ("Suspend a tenant in a script", "svc tenants suspend acme --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --yes \
        without a terminal; pass --yes only if the user asked for this change. Logs out all users and \
        rejects all producers of the tenant; users and events are kept, and consumers of the broker still read the stored events \
        (`svc consumers list --all-tenants`). Idempotent.";
    const SEE_ALSO: Names = &["tenants resume", "tenants get", "tenants delete", "users disable"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let name = label(context, &api, &self.tenant_id).await?;
        let question = format!("Suspend tenant {name}, revoke its sessions and reject its API keys?");
        context.prompt().confirm(&question).await?;
        set_status(&api, &self.tenant_id, TenantStatus::Suspended).await
    }
}

/// Resume a suspended tenant.
#[derive(Args)]
pub(crate) struct Resume {
    /// Tenant id.
    tenant_id: TenantId,
}

impl Command for Resume {
    type Output = Tenant;

    const ROUTES: Routes = Routes::Only(&[&routes::UPDATE_TENANT]);
    const EXAMPLES: Examples = &[("Resume a tenant", "svc tenants resume acme")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. API keys \
        work again. Revoked sessions stay revoked, so users must log in again. Idempotent.";
    const SEE_ALSO: Names = &["tenants suspend", "tenants get"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        set_status(&context.connect(Self::REQUIRES).await?, &self.tenant_id, TenantStatus::Active).await
    }
}

/// Delete a suspended tenant and erase its personal data.
///
/// Deletes its users, invites, sessions and API keys. Cannot be undone; the id cannot be used again. Asks to type the
/// tenant id.
#[derive(Args)]
pub(crate) struct Delete {
    /// Tenant id.
    tenant_id: TenantId,
}

ended!(
    /// Result of deleting a tenant.
    DeletedTenant {
        /// Id of the tenant.
        tenant_id: TenantId,
        deleted
    }: "Tenant deleted."
);

impl Command for Delete {
    type Output = DeletedTenant;

    const ROUTES: Routes = Routes::Only(&[&routes::DELETE_TENANT, &routes::GET_TENANT]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Delete a suspended tenant after confirmation", "svc tenants delete acme"),
        ("Delete a suspended tenant in a script", "svc tenants delete acme --yes"),
    ];
    const AGENT_NOTES: &'static str = "Cannot be undone. Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and \
        --yes without a terminal; pass --yes only if the user asked to delete this tenant. Only a suspended tenant \
        can be deleted. Stored events are kept until they expire. Idempotent.";
    const SEE_ALSO: Names = &["tenants suspend", "tenants get", "users delete"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let name = label(context, &api, &self.tenant_id).await?;
        let question =
            format!("Delete tenant {name} for good, with its users, invites, sessions and API keys?");
        context.prompt().confirm_name(&question, self.tenant_id.as_str()).await?;
        api.call(&routes::DELETE_TENANT, &[&self.tenant_id]).execute().await?;
        Ok(DeletedTenant::new(self.tenant_id))
    }
}

/// Id of a tenant, with its name for a question to a person.
async fn label(context: &Context, api: &Api, tenant: &TenantId) -> Result<String> {
    if !context.prompt().asks_for_confirmation() {
        return Ok(tenant.to_string());
    }
    let Tenant { display_name, .. } = api.call(&routes::GET_TENANT, &[tenant]).fetch().await?;
    Ok(format!("{tenant} (\"{display_name}\")"))
}

/// Changes the status of a tenant.
async fn set_status(api: &Api, tenant: &TenantId, status: TenantStatus) -> Result<Tenant> {
    let patch = PatchTenant { status: Some(status), ..PatchTenant::default() };
    api.call(&routes::UPDATE_TENANT, &[tenant]).json(&patch)?.fetch().await
}
