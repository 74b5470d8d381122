//! Account status from identity. Records can arrive late, repeated and out of order: an older version changes nothing. Each
//! change publishes an invalidation, because ingest caches introspection results.

use audit::Actor;
use bus::Invalidation;
use contract::internal::{ExportSubject, SubjectExport, SubjectRecord, TenantRecord};
use contract::session::Session;
use database::TenantTx;

use super::App;
use crate::store::{account_status, api_key, device_grant, session};

/// Objects of each kind in an export. A tenant has at most as many keys, and a user far fewer sessions.
const MAX_EXPORTED: i64 = 1000;

impl App {
    /// Applies the status of a user, if it is newer than the stored one.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn apply_subject_status(&self, record: &SubjectRecord) -> Result<(), database::Error> {
        let mut tx = self.begin(&record.tenant_id, Actor::System).await?;
        self.apply_subject(&mut tx, record).await?;
        tx.commit().await
    }

    /// Applies the status of a tenant, if it is newer than the stored one.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn apply_tenant_status(&self, record: &TenantRecord) -> Result<(), database::Error> {
        let mut tx = self.begin(&record.tenant_id, Actor::System).await?;
        self.apply_tenant(&mut tx, record).await?;
        tx.commit().await
    }

    /// Returns the stored data about a user.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn export_subject(
        &self,
        request: ExportSubject,
    ) -> Result<SubjectExport, database::Error> {
        let mut tx = self.begin(&request.tenant_id, Actor::System).await?;
        let sessions = session::list_stored(&mut tx, request.user_id, MAX_EXPORTED).await?;
        Ok(SubjectExport {
            sessions: sessions.into_iter().map(|session| Session { current: None, ..session }).collect(),
            api_keys: api_key::list_created_by(&mut tx, request.user_id, MAX_EXPORTED).await?,
        })
    }

    pub(super) async fn apply_subject(
        &self,
        tx: &mut TenantTx,
        record: &SubjectRecord,
    ) -> Result<(), database::Error> {
        if account_status::apply_subject(tx, record).await? {
            self.invalidate(tx, Invalidation::User(record.user_id));
            self.revoke_api_keys_of(tx, record).await?;
            if record.is_deleted {
                device_grant::erase_user(tx, record.user_id).await?;
                device_grant::deny_approved(tx, record.user_id).await?;
                session::mark_all_revoked(tx, record.user_id, None).await?;
                session::erase_user(tx, record.user_id).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn apply_tenant(
        &self,
        tx: &mut TenantTx,
        record: &TenantRecord,
    ) -> Result<(), database::Error> {
        if account_status::apply_tenant(tx, record).await? {
            self.invalidate(tx, Invalidation::Tenant(record.tenant_id.clone()));
        }
        Ok(())
    }
}
