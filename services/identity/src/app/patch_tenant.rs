//! Rename, suspend and resume a tenant, and change its quota.

use audit::{Actor, AuditEvent, EventName};
use contract::identity::{PatchTenant, Tenant};
use contract::{ProblemKind, TenantStatus};
use service::Problem;
use tenancy::TenantScope;

use super::App;
use super::create_tenant::{CreateTenantError, checked_name, checked_quota};
use crate::store::tenant;

impl App {
    /// What is absent stays. Suspension ends every session of the tenant; they stay dead when it is resumed.
    pub(crate) async fn patch_tenant(
        &self,
        scope: &TenantScope,
        patch: &PatchTenant,
    ) -> Result<Tenant, Problem> {
        let name = patch.display_name.as_deref().map(checked_name).transpose()?;
        if let Some(quota) = &patch.quota {
            checked_quota(quota)?;
        }
        let now = self.clock.now();
        let mut tx = self.database.tenant(scope).await?;
        let found = tenant::find_locked(&mut tx, scope.tenant_id()).await?.ok_or(ProblemKind::NotFound)?;
        let changed = Tenant {
            display_name: name.map_or(found.display_name, str::to_owned),
            status: patch.status.unwrap_or(found.status),
            quota: patch.quota.unwrap_or(found.quota),
            ..found
        };
        let suspends = changed.status == TenantStatus::Suspended && found.status == TenantStatus::Active;
        let about = match changed.status {
            status if status == found.status => "tenant_changed",
            TenantStatus::Suspended => "tenant_suspended",
            TenantStatus::Active => "tenant_resumed",
        };
        let event =
            AuditEvent { about: Some(about), ..AuditEvent::new(EventName::AuthzAdmin, Actor::PlatformAdmin) };
        tenant::update(&mut tx, &changed, suspends, now).await.map_err(CreateTenantError::from)?;
        self.audit.record_at(&mut tx, scope.tenant_id(), event, now).await?;
        self.write_tenant(&mut tx, scope.tenant_id(), now).await?;
        tx.commit().await?;
        self.push_tenant(scope.tenant_id()).await;
        Ok(changed)
    }
}
