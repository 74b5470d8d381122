//! Tell session how users and tenants stand. The certain way is an outbox row in the transaction of the change; the quick
//! way is that the request which made the change also tells session itself, and waits for that a little. Both send the
//! whole state as it is when it is sent, with its version, so that neither order nor repetition matters.

use std::time::Duration;

use authn::Unavailable;
use chrono::{DateTime, Utc};
use database::{Error, TenantTx};
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use crate::message::Message;
use crate::store::{tenant, user};

/// How long an answer waits for session: after that the effect is certain all the same, only late.
const PATIENCE: Duration = Duration::from_secs(2);

/// Session was not told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TellError {
    #[error(transparent)]
    Database(#[from] Error),
    #[error(transparent)]
    Session(#[from] Unavailable),
}

impl App {
    /// Has session told of a user once the transaction commits.
    pub(super) async fn write_subject(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        user_id: UserId,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let _ = tenant_id;
        tx.set_now(now);
        tx.send(&Message::PushUserStatus { user_id });
        Ok(())
    }

    /// Has session told of a tenant once the transaction commits.
    pub(super) async fn write_tenant(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let _ = tenant_id;
        tx.set_now(now);
        tx.send(&Message::PushTenantStatus);
        Ok(())
    }

    /// Tells session how a user stands now.
    pub(crate) async fn tell_subject(&self, tenant_id: &TenantId, user_id: UserId) -> Result<(), TellError> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(tenant_id.clone())).await?;
        let record = user::record(&mut tx, user_id).await?;
        drop(tx);
        if let Some(record) = record {
            self.sessions.put_subject(&record).await?;
        }
        Ok(())
    }

    /// Tells session how a tenant stands now.
    pub(crate) async fn tell_tenant(&self, tenant_id: &TenantId) -> Result<(), TellError> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(tenant_id.clone())).await?;
        let record = tenant::record(&mut tx, tenant_id).await?;
        drop(tx);
        if let Some(record) = record {
            self.sessions.put_tenant(&record).await?;
        }
        Ok(())
    }

    /// After the commit: the quick way for a user.
    pub(super) async fn push_subject(&self, tenant_id: &TenantId, user_id: UserId) {
        self.settle(self.tell_subject(tenant_id, user_id)).await;
    }

    /// After the commit: the quick way for a tenant.
    pub(super) async fn push_tenant(&self, tenant_id: &TenantId) {
        self.settle(self.tell_tenant(tenant_id)).await;
    }

    async fn settle(&self, telling: impl Future<Output = Result<(), TellError>>) {
        match tokio::time::timeout(PATIENCE, telling).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "session is told later"),
            Err(_) => tracing::warn!("session is told later: it took too long"),
        }
    }
}
