//! Pushes account status to the session service.
//!
//! An outbox message in the transaction of the change guarantees the push. The request that made the change also pushes and
//! waits for a short time. Both send the complete current record with its version, so order and repetition have no influence.

use std::time::Duration;

use authn::Unavailable;
use database::Error;
use service::chain;
use tenancy::{Actor, TenantId, UserId};
use tracing::field::display;

use super::App;
use crate::message::Message;
use crate::store::{tenant, user};

/// How long a response waits for the push. After that the outbox delivers it.
const PUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error(transparent)]
    Database(#[from] Error),
    #[error("the session service is not available")]
    Session(#[from] Unavailable),
}

impl App {
    /// Pushes the status of a user.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn push_user_status(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
    ) -> Result<(), PushError> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        let record = user::find_record(&mut tx, user_id).await?;
        // The connection is free during the request.
        drop(tx);
        if let Some(record) = record {
            self.sessions.put_subject(&record).await?;
        }
        Ok(())
    }

    /// Pushes the status of a tenant.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn push_tenant_status(&self, tenant_id: &TenantId) -> Result<(), PushError> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        let record = tenant::find_record(&mut tx).await?;
        drop(tx);
        if let Some(record) = record {
            self.sessions.put_tenant(&record).await?;
        }
        Ok(())
    }

    /// Pushes the status that a message names, for at most [`PUSH_TIMEOUT`]. The outbox retries a failed push.
    pub(super) async fn push_now(&self, tenant_id: &TenantId, message: &Message) {
        let user_id = match message {
            Message::PushUserStatus { user_id } => Some(display(user_id)),
            _ => None,
        };
        let push = async {
            match message {
                Message::PushUserStatus { user_id } => self.push_user_status(tenant_id, *user_id).await,
                Message::PushTenantStatus => self.push_tenant_status(tenant_id).await,
                _ => Ok(()),
            }
        };
        match tokio::time::timeout(PUSH_TIMEOUT, push).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = chain(&error);
                tracing::warn!(error, %tenant_id, user_id, "failed to push account status; retrying from outbox");
            }
            Err(_) => {
                tracing::warn!(%tenant_id, user_id, "timed out pushing account status; retrying from outbox");
            }
        }
    }
}
