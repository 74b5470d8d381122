//! `svc tenants`: the operator's side of tenants.

mod create;
mod get;
mod list;
mod resume;
mod suspend;

use contract::TenantStatus;
use contract::identity::{PatchTenant, Tenant};
use reqwest::Method;
use tenancy::TenantId;

use super::group;
use crate::context::{Caller, Context};
use crate::error::Result;
use crate::output::{Report, Row, Table, time};

group!(
    /// Create, see and suspend tenants, as the operator.
    Tenants {
        Create(create::Create),
        List(list::List),
        Get(get::Get),
        Suspend(suspend::Suspend),
        Resume(resume::Resume),
    }
);

/// Changes the standing of a tenant, and prints what became of it.
async fn set_status(
    context: &Context,
    operator: &Caller,
    tenant: &TenantId,
    status: TenantStatus,
) -> Result<()> {
    let api = context.api()?;
    let call = api.call(Method::PATCH, &format!("/tenants/{tenant}")).bearer(&operator.bearer)?;
    let patch = PatchTenant { status: Some(status), ..PatchTenant::default() };
    let tenant: Tenant = call.json(&patch)?.fetch().await?;
    context.out().print(&tenant)
}

impl Report for Tenant {
    fn table(&self) -> Table {
        let limit = |limit: Option<u32>| limit.map(|limit| limit.to_string());
        let invite = self.invite.as_ref();
        Table::of_fields([
            ("tenant", Some(self.tenant_id.to_string())),
            ("name", Some(self.display_name.clone())),
            ("status", Some(self.status.to_string())),
            ("events per second", limit(self.quota.events_per_second)),
            ("bytes per second", limit(self.quota.bytes_per_second)),
            ("created", Some(time(&self.created_at))),
            ("administrator", invite.map(|invite| invite.email.clone())),
            ("invite expires", invite.map(|invite| time(&invite.expires_at))),
            ("invite token", invite.and_then(|invite| Some(invite.token.as_ref()?.expose().to_owned()))),
        ])
    }
}

impl Row for Tenant {
    const HEADING: &'static [&'static str] = &["TENANT", "NAME", "STATUS", "CREATED"];
    const NONE: &'static str = "No tenant.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.tenant_id.to_string(),
            self.display_name.clone(),
            self.status.to_string(),
            time(&self.created_at),
        ]
    }
}
