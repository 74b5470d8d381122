//! Take over what identity says of a user's or a tenant's standing. Records may arrive late, twice and out of order: an
//! older version changes nothing.

use contract::internal::{SubjectRecord, TenantRecord};
use tenancy::TenantScope;

use super::App;
use crate::store::standing;

impl App {
    pub(crate) async fn take_subject(&self, record: &SubjectRecord) -> Result<(), database::Error> {
        let mut tx = self.database.tenant(&TenantScope::of_work(record.tenant_id.clone())).await?;
        standing::take_subject(&mut tx, record).await?;
        tx.commit().await
    }

    pub(crate) async fn take_tenant(&self, record: &TenantRecord) -> Result<(), database::Error> {
        let mut tx = self.database.tenant(&TenantScope::of_work(record.tenant_id.clone())).await?;
        standing::take_tenant(&mut tx, record).await?;
        tx.commit().await
    }
}
