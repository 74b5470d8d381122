//! Take over what identity says of a user's or a tenant's standing. Records may arrive late, twice and out of order: an
//! older version changes nothing. What changes something is hinted at everybody who remembers.

use bus::Invalidation;
use contract::internal::{SubjectRecord, TenantRecord};
use tenancy::TenantScope;

use super::App;
use crate::store::standing;

impl App {
    pub(crate) async fn take_subject(&self, record: &SubjectRecord) -> Result<(), database::Error> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(record.tenant_id.clone())).await?;
        let changed = standing::take_subject(&mut tx, record).await?;
        tx.commit().await?;
        if changed {
            self.invalidations.publish([Invalidation::User(record.user_id)]);
        }
        Ok(())
    }

    pub(crate) async fn take_tenant(&self, record: &TenantRecord) -> Result<(), database::Error> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(record.tenant_id.clone())).await?;
        let changed = standing::take_tenant(&mut tx, record).await?;
        tx.commit().await?;
        if changed {
            self.invalidations.publish([Invalidation::Tenant(record.tenant_id.clone())]);
        }
        Ok(())
    }
}
