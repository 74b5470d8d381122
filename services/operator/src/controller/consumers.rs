//! Writes of consumers: to ingest, and the Secrets with their logins.

use contract::consumers::{ConsumerName, CreateConsumer};
use contract::managed::{ConsumerReference, ManagedConsumer, StoredConsumer, WrittenConsumer};
use kube::Resource as _;
use uuid::Uuid;

use super::{Controller, Record};
use crate::failure::WriteError;
use crate::login_secret::LoginSecret;
use crate::memory::Memory;
use crate::resources::SvcConsumer;
use crate::services::{CallError, ServiceClient};
use crate::status::Kind;

impl Controller {
    /// Reads the stored consumers. If they cannot be read, the last ones remain.
    pub(super) async fn poll_consumers(&self, memory: &mut Memory) {
        let Some(ingest) = &self.ingest else { return };
        let (list, key) = (ingest.consumers().await, |stored: &StoredConsumer| stored.owner.uid);
        super::keep(&mut memory.stored_consumers, list, key, "consumers from ingest");
    }

    pub(super) async fn put_consumer(
        &self,
        resource: &SvcConsumer,
        uid: Uuid,
        consumer: &CreateConsumer,
        record: &Record<'_>,
    ) -> Result<(), WriteError> {
        // Not created if its login cannot be written.
        self.kubernetes.login(resource).await?;
        let write = ManagedConsumer {
            consumer: consumer.clone(),
            generation: resource.metadata.generation.unwrap_or_default(),
            take_over_from: self.take_over_from.to_vec(),
        };
        let written = self.ingest()?.put_consumer(uid, &write).await?;
        // Without the Secret, the next plan replaces the login.
        let active = self.write_issued(resource, &written, record).await.inspect_err(super::log_secret);
        record.lock().put_consumer(written.stored);
        // A new resource that becomes ready causes no event.
        if let Ok(Some(false)) = active {
            self.publish_login(resource, false).await;
        }
        Ok(())
    }

    pub(super) async fn put_login(
        &self,
        resource: &SvcConsumer,
        uid: Uuid,
        stored: &StoredConsumer,
        record: &Record<'_>,
    ) -> Result<(), WriteError> {
        // The cache can be older than the Secret, and programs may use its login already.
        if let Some(found) = self.kubernetes.login(resource).await?
            && let Some(password) = found.password_of(stored)
        {
            let login = LoginSecret::new(stored, password, &self.consumer_nats_url);
            self.kubernetes.write_login(resource, &login).await?;
            record.lock().put_login(resource, Some(login));
            return Ok(());
        }
        let written = self.ingest()?.renew_login(uid, &reference(&stored.consumer.name, false)).await?;
        let active = self.write_issued(resource, &written, record).await.inspect_err(super::log_secret)?;
        record.lock().put_consumer(written.stored);
        if let Some(active) = active {
            self.publish_login(resource, active).await;
        }
        Ok(())
    }

    /// Deletes a consumer, or the login of one that is not allowed.
    pub(super) async fn delete_consumer(
        &self,
        uid: Uuid,
        name: &ConsumerName,
        not_allowed: Option<&SvcConsumer>,
        record: &Record<'_>,
    ) -> Result<(), WriteError> {
        if let Some(resource) = not_allowed {
            match self.kubernetes.delete_login(resource).await {
                // The Secret of someone else remains.
                Ok(()) | Err(WriteError::SecretTaken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.ingest()?.delete_consumer(uid, &reference(name, not_allowed.is_none())).await?;
        let reason = if not_allowed.is_some() {
            "its login only: its tenant does not allow it"
        } else {
            "its resource does not exist"
        };
        tracing::info!(consumer = %name, %uid, reason, "consumer deleted");
        self.metrics.count_release(Kind::Consumer);
        record.lock().forget_consumer(uid, not_allowed.is_none());
        if let Some(resource) = not_allowed {
            record.lock().put_login(resource, None);
        }
        Ok(())
    }

    /// Writes the Secret with a new login, if there is one. Returns whether the broker accepts it.
    async fn write_issued(
        &self,
        resource: &SvcConsumer,
        written: &WrittenConsumer,
        record: &Record<'_>,
    ) -> Result<Option<bool>, kube::Error> {
        let Some(issued) = &written.login else { return Ok(None) };
        let secret = LoginSecret::new(&written.stored, issued.password.expose(), &self.consumer_nats_url);
        self.kubernetes.write_login(resource, &secret).await?;
        record.lock().put_login(resource, Some(secret));
        Ok(Some(issued.active))
    }

    /// Publishes that a login is new, and whether it is accepted.
    async fn publish_login(&self, resource: &SvcConsumer, active: bool) {
        let (reason, note) = if active {
            ("LoginReplaced", "The Secret has a new login.")
        } else {
            (
                "LoginNotActive",
                "The Secret has a new login. The broker accepts it when its administrator has installed the accounts of consumers.",
            )
        };
        self.kubernetes.publish(&resource.object_ref(&()), reason, None, note).await;
    }

    /// Plans contain no consumers without the client.
    fn ingest(&self) -> Result<&ServiceClient, CallError> {
        self.ingest.as_ref().ok_or_else(|| CallError::Unavailable("it is not configured".to_owned()))
    }
}

fn reference(name: &ConsumerName, is_final: bool) -> ConsumerReference {
    ConsumerReference { name: name.clone(), is_final }
}
