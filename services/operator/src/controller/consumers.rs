//! Writes of consumers: to ingest, and the Secrets with their logins.

use std::sync::Arc;

use contract::consumers::{ConsumerName, CreateConsumer};
use contract::managed::{ConsumerReference, ManagedConsumer, StoredConsumer, WrittenConsumer};
use kube::Resource as _;
use uuid::Uuid;

use super::{Controller, Written};
use crate::failure::WriteError;
use crate::login_secret::LoginSecret;
use crate::memory::Memory;
use crate::resources::SvcConsumer;
use crate::services::{CallError, IngestClient};

impl Controller {
    /// Reads the stored consumers. If they cannot be read, the last ones remain.
    pub(super) async fn poll_consumers(&self, memory: &mut Memory) {
        let Some(ingest) = &self.ingest else { return };
        match ingest.list().await {
            Ok(consumers) => {
                let consumers = consumers.into_iter().map(|stored| (stored.owner.uid, stored));
                memory.stored_consumers = Some(Arc::new(consumers.collect()));
            }
            Err(error) => tracing::warn!(%error, "failed to read the consumers from ingest"),
        }
    }

    pub(super) async fn put_consumer(
        &self,
        resource: &SvcConsumer,
        uid: Uuid,
        consumer: &CreateConsumer,
    ) -> Result<Written, WriteError> {
        // Not created if its login cannot be written.
        self.kubernetes.login(resource).await?;
        let write = ManagedConsumer {
            consumer: consumer.clone(),
            generation: resource.metadata.generation.unwrap_or_default(),
            take_over_from: self.take_over_from.to_vec(),
        };
        let written = self.ingest()?.put(uid, &write).await?;
        // Without the Secret, the next plan replaces the login.
        let result = self.write_issued(resource, &written).await;
        Ok(result.inspect_err(super::log_secret).unwrap_or_else(|_| Written::Consumer {
            stored: Box::new(written.stored),
            login: None,
            active: None,
        }))
    }

    pub(super) async fn put_login(
        &self,
        resource: &SvcConsumer,
        uid: Uuid,
        stored: &StoredConsumer,
    ) -> Result<Written, WriteError> {
        // The cache can be older than the Secret, and programs may use its login already.
        if let Some(found) = self.kubernetes.login(resource).await?
            && let Some(password) = found.password_of(stored)
        {
            let login = LoginSecret::new(stored, password, &self.consumer_nats_url);
            self.kubernetes.write_login(resource, &login).await?;
            let stored = Box::new(stored.clone());
            return Ok(Written::Consumer { stored, login: Some(login), active: None });
        }
        let written = self.ingest()?.renew_login(uid, &reference(&stored.consumer.name, false)).await?;
        Ok(self.write_issued(resource, &written).await.inspect_err(super::log_secret)?)
    }

    /// Deletes a consumer, or the login of one that is not allowed.
    pub(super) async fn delete_consumer(
        &self,
        uid: Uuid,
        name: &ConsumerName,
        not_allowed: Option<&SvcConsumer>,
    ) -> Result<(), WriteError> {
        if let Some(resource) = not_allowed {
            match self.kubernetes.delete_login(resource).await {
                // The Secret of someone else remains.
                Ok(()) | Err(WriteError::SecretTaken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.ingest()?.delete(uid, &reference(name, not_allowed.is_none())).await?)
    }

    /// Writes the Secret with a new login, if there is one.
    async fn write_issued(
        &self,
        resource: &SvcConsumer,
        written: &WrittenConsumer,
    ) -> Result<Written, kube::Error> {
        let (stored, active) =
            (Box::new(written.stored.clone()), written.login.as_ref().map(|login| login.active));
        let mut login = None;
        if let Some(issued) = &written.login {
            let secret = LoginSecret::new(&stored, issued.password.expose(), &self.consumer_nats_url);
            self.kubernetes.write_login(resource, &secret).await?;
            login = Some(secret);
        }
        Ok(Written::Consumer { stored, login, active })
    }

    /// Publishes that a login is new or not accepted yet.
    pub(super) async fn publish_login(&self, resource: &SvcConsumer, active: Option<bool>) {
        let (reason, note) = match active {
            None => return,
            Some(true) => ("LoginReplaced", "The Secret has a new login."),
            Some(false) => (
                "LoginNotActive",
                "The Secret has a new login. The broker accepts it when its administrator has installed the accounts of consumers.",
            ),
        };
        self.kubernetes.publish(&resource.object_ref(&()), reason, None, note).await;
    }

    /// Plans contain no consumers without the client.
    fn ingest(&self) -> Result<&IngestClient, CallError> {
        self.ingest.as_ref().ok_or_else(|| CallError::Unavailable("it is not configured".to_owned()))
    }
}

fn reference(name: &ConsumerName, is_final: bool) -> ConsumerReference {
    ConsumerReference { name: name.clone(), is_final }
}
