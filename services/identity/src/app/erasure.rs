//! Erasure: a deleted user or tenant leaves the id only.

use std::time::Duration;

use audit::{AuditEvent, EventName};
use authn::Caller;
use contract::{ProblemKind, TenantStatus};
use database::Error;
use service::{Problem, chain};
use tenancy::{Actor, TenantId, UserId};
use tokio::time::Instant;

use super::App;
use crate::domain::account::{AccountKey, AccountRef};
use crate::domain::email::EmailKey;
use crate::message::Message;
use crate::store::{erasure, tenant, user};

/// Rows of each table that one transaction deletes. Small, so that no statement takes long.
const BATCH: i64 = 500;
/// The time after which a response no longer waits for the erasure of a large tenant. The purge continues it.
const ERASE_TIMEOUT: Duration = Duration::from_secs(2);

impl App {
    /// Deletes a user of the administrator's tenant and erases the personal data. A repeated call succeeds. The tenant always keeps
    /// an active administrator.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn delete_user(&self, admin: &Caller, user_id: UserId) -> Result<(), Problem> {
        let deleted_by = admin.user_id().ok_or(ProblemKind::Forbidden)?;
        let mut tx = self.begin(admin.tenant_id(), admin.into()).await?;
        // Administrators, invites, then the user: the order of every transaction.
        let admins = user::lock_oldest_admins(&mut tx).await?;
        let Some(found) = user::find(&mut tx, user_id).await? else {
            let is_deleted = erasure::is_deleted(&mut tx, user_id).await?;
            return if is_deleted { Ok(()) } else { Err(ProblemKind::NotFound.into()) };
        };
        if matches!(&*admins, [last] if last.user_id == user_id) {
            return Err(ProblemKind::LastAdmin.into());
        }
        let email = EmailKey::from_typed(&found.email);
        erasure::delete_invites_and_mails(&mut tx, user_id, &email).await?;
        erasure::delete_user(&mut tx, user_id, deleted_by).await?;
        let tenant_id = admin.tenant_id();
        erasure::delete_login_attempts(&mut tx, &self.accounts(tenant_id, user_id, &email)).await?;
        tx.audit(AuditEvent::new(EventName::UserDeleted).user(user_id).always_recorded());
        tx.send(&Message::PushUserStatus { user_id });
        tx.commit().await?;
        tracing::info!(%tenant_id, %user_id, "user deleted");
        Ok(())
    }

    /// Deletes a suspended tenant and erases the data of its users. A repeated call succeeds.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn delete_tenant(&self, tenant_id: &TenantId) -> Result<(), Problem> {
        let mut tx = self.begin(tenant_id, Actor::PlatformAdmin).await?;
        let Some(found) = tenant::find_for_update(&mut tx).await? else {
            let is_deleted = erasure::is_tenant_deleted(&mut tx).await?;
            return if is_deleted { Ok(()) } else { Err(ProblemKind::NotFound.into()) };
        };
        if found.status == TenantStatus::Active {
            return Err(ProblemKind::TenantActive.into());
        }
        erasure::mark_tenant_deleted(&mut tx).await?;
        tx.audit(AuditEvent::new(EventName::AuthzAdmin).about("tenant_deleted"));
        tx.send(&Message::PushTenantStatus);
        tx.commit().await?;
        tracing::info!(%tenant_id, "tenant deleted");
        if let Err(error) = self.erase_tenant(tenant_id, Some(Instant::now() + ERASE_TIMEOUT)).await {
            let error = chain(&error);
            tracing::warn!(error, %tenant_id, "failed to erase deleted tenant; the purge repeats it");
        }
        Ok(())
    }

    /// Erases the rows of deleted tenants. An error does not stop the erasure of the next tenant.
    pub(crate) async fn erase_tenants(&self) -> Result<(), Error> {
        let (mut after, mut result) = (String::new(), Ok(()));
        while let Some(tenant_id) =
            erasure::find_deleted_tenant(&self.database, &after, self.clock.now()).await?
        {
            result = result.and(self.erase_tenant(&tenant_id, None).await);
            tenant_id.as_str().clone_into(&mut after);
        }
        result
    }

    /// Erases the rows of a deleted tenant until the deadline, unless another transaction does.
    async fn erase_tenant(&self, tenant_id: &TenantId, deadline: Option<Instant>) -> Result<(), Error> {
        while deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let mut tx = self.begin(tenant_id, Actor::System).await?;
            if !erasure::lock_deleted_tenant(&mut tx).await? {
                break;
            }
            let users = erasure::list_users(&mut tx, BATCH).await?;
            let accounts: Vec<_> =
                users.iter().flat_map(|(user_id, email)| self.accounts(tenant_id, *user_id, email)).collect();
            let users: Vec<_> = users.into_iter().map(|(user_id, _)| user_id).collect();
            let is_erased = erasure::erase_tenant(&mut tx, &users, &accounts, BATCH).await?;
            tx.commit().await?;
            if is_erased {
                break;
            }
        }
        Ok(())
    }

    /// The names under which attempts at the password of a user are counted.
    fn accounts(&self, tenant_id: &TenantId, user_id: UserId, email: &EmailKey) -> [AccountKey; 2] {
        [AccountRef::Email(tenant_id, email), AccountRef::User(tenant_id, user_id)]
            .map(|account| self.config.limiter_keys.get().account(&account))
    }
}
