//! `svc tenants resume`

use clap::Args;
use contract::identity::Tenant;
use contract::{ProblemKind, TenantStatus};
use tenancy::TenantId;

use super::set_status;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;

/// Let a suspended tenant in again.
#[derive(Args)]
pub(crate) struct Resume {
    /// Id of the tenant.
    #[arg(value_name = "TENANT_ID")]
    tenant_id: TenantId,
}

impl Command for Resume {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::PlatformAdmin,
            examples: &[("Resume a tenant", "svc tenants resume acme")],
            agent_notes: "Needs SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Its API keys work again; its people log in \
                          anew, because sessions that ended stay ended. Repeating it changes nothing.",
            see_also: &["tenants suspend", "tenants get"],
            errors: &[Failure::Api(ProblemKind::NotFound)],
            input_schema: None,
            output_schema: Some(schema_of::<Tenant>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let operator = context.operator()?;
        set_status(context, &operator, &self.tenant_id, TenantStatus::Active).await
    }
}
