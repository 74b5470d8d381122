//! `svc tenants create`

use clap::Args;
use contract::ProblemKind;
use contract::identity::{CreateTenant, Quota, Tenant};
use reqwest::Method;
use tenancy::TenantId;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::commands::users::DeliveryArgument;
use crate::context::Context;
use crate::error::Result;

/// Create a tenant, and invite its first administrator.
#[derive(Args)]
pub(crate) struct Create {
    /// Id of the tenant: 1 to 63 of a-z, 0-9 and `-`. It never changes.
    #[arg(value_name = "TENANT_ID")]
    tenant_id: TenantId,
    /// What people call it [default: its id].
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    /// AccountRef to invite as its first administrator.
    #[arg(long, value_name = "EMAIL")]
    admin_email: Option<String>,
    /// How that invite reaches them: by mail, or as a token in the answer for you to hand over.
    #[arg(long, value_name = "HOW", default_value = "email", requires = "admin_email")]
    delivery: DeliveryArgument,
    /// Events a second that it may send, per replica of the service; no limit when it is left out.
    #[arg(long, value_name = "COUNT")]
    events_per_second: Option<u32>,
    /// Bytes a second that it may send, per replica of the service; no limit when it is left out.
    #[arg(long, value_name = "COUNT")]
    bytes_per_second: Option<u32>,
}

impl Command for Create {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::PlatformAdmin,
            examples: &[(
                "Create a tenant, and get the administrator's invite token to hand over",
                "svc tenants create acme --display-name \"Acme Ltd\" --admin-email ada@acme.example --delivery response",
            )],
            agent_notes: "Needs SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE; a session does not do. With --delivery \
                          response the output holds a credential, shown only this once.",
            see_also: &["tenants get", "users accept-invite", "users invite"],
            errors: &[
                Failure::Api(ProblemKind::TenantExists),
                Failure::Api(ProblemKind::MailUnavailable),
                Failure::Api(ProblemKind::ValidationFailed),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Tenant>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let operator = context.operator()?;
        let limited = self.events_per_second.is_some() || self.bytes_per_second.is_some();
        let quota =
            Quota { events_per_second: self.events_per_second, bytes_per_second: self.bytes_per_second };
        let create = CreateTenant {
            display_name: self.display_name.unwrap_or_else(|| self.tenant_id.to_string()),
            tenant_id: self.tenant_id,
            admin_email: self.admin_email,
            delivery: self.delivery.into(),
            quota: limited.then_some(quota),
        };
        let api = context.api()?;
        let call = api.call(Method::POST, "/tenants").bearer(&operator.bearer)?;
        let tenant: Tenant = call.json(&create)?.fetch().await?;
        context.out().print(&tenant)
    }
}
