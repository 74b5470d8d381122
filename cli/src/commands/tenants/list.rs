//! `svc tenants list`

use clap::Args;
use contract::identity::Tenant;

use crate::catalog::{Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::output::Listed;

/// List all tenants.
#[derive(Args)]
pub(crate) struct List {}

impl Command for List {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::PlatformAdmin,
            examples: &[("List the tenants, one JSON object a line", "svc tenants list --output ndjson")],
            agent_notes: "Needs SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Reads all pages.",
            see_also: &["tenants get", "tenants create"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Listed<Tenant>>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let operator = context.operator()?;
        let items: Vec<Tenant> =
            context.api()?.list("/tenants", |call| call.bearer(&operator.bearer)).await?;
        context.out().print(&Listed { items })
    }
}
