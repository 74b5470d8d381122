//! `svc tenants suspend`

use clap::Args;
use contract::identity::Tenant;
use contract::{ProblemKind, TenantStatus};
use tenancy::TenantId;

use super::set_status;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Shut a tenant out: all its sessions end, and its API keys are refused until it is resumed.
///
/// Asks before it acts.
#[derive(Args)]
pub(crate) struct Suspend {
    /// Id of the tenant.
    #[arg(value_name = "TENANT_ID")]
    tenant_id: TenantId,
}

impl Command for Suspend {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::PlatformAdmin,
            examples: &[
                ("Suspend a tenant, and be asked first", "svc tenants suspend acme"),
                ("The same from a script", "svc tenants suspend acme --yes"),
            ],
            agent_notes: "Needs SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --yes where nobody can be asked; pass it \
                          only when the person you work for wants it. Everybody in the tenant is logged out and its \
                          producers are refused; events and users stay. Repeating it changes nothing.",
            see_also: &["tenants resume", "tenants get", "users disable"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::Declined),
                Failure::Api(ProblemKind::NotFound),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Tenant>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let operator = context.operator()?;
        let question = format!("Suspend tenant {}, end its sessions and refuse its keys?", self.tenant_id);
        context.prompt().confirm(&question).await?;
        set_status(context, &operator, &self.tenant_id, TenantStatus::Suspended).await
    }
}
