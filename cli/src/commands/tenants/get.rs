//! `svc tenants get`

use clap::Args;
use contract::ProblemKind;
use contract::identity::Tenant;
use reqwest::Method;
use tenancy::TenantId;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;

/// See one tenant.
#[derive(Args)]
pub(crate) struct Get {
    /// Id of the tenant.
    #[arg(value_name = "TENANT_ID")]
    tenant_id: TenantId,
}

impl Command for Get {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::PlatformAdmin,
            examples: &[("See a tenant's standing and quota", "svc tenants get acme")],
            agent_notes: "Needs SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Exit status 3 when there is no such tenant.",
            see_also: &["tenants list", "tenants create", "tenants suspend"],
            errors: &[Failure::Api(ProblemKind::NotFound)],
            input_schema: None,
            output_schema: Some(schema_of::<Tenant>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let operator = context.operator()?;
        let api = context.api()?;
        let call = api.call(Method::GET, &format!("/tenants/{}", self.tenant_id));
        let tenant: Tenant = call.bearer(&operator.bearer)?.fetch().await?;
        context.out().print(&tenant)
    }
}
