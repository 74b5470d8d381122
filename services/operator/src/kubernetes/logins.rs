//! The Secrets with the logins of consumers, in the namespaces of their resources.

use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use kube::{Api, Resource as _, ResourceExt as _};

use super::{Kubernetes, unless_absent};
use crate::failure::WriteError;
use crate::login_secret::{self, LoginSecret};
use crate::resources::SvcConsumer;

impl Kubernetes {
    /// Reads the Secret of a consumer from the API server.
    ///
    /// # Errors
    /// [`WriteError::SecretTaken`] for a Secret of someone else.
    pub(crate) async fn login(&self, consumer: &SvcConsumer) -> Result<Option<LoginSecret>, WriteError> {
        let name = login_secret::name(&consumer.name_any());
        let Some(mut secret) = self.secrets_of(consumer).get_opt(&name).await? else { return Ok(None) };
        let is_own = secret.labels().contains_key(login_secret::LABEL)
            || secret.owner_references().iter().any(|owner| owner.kind == SvcConsumer::kind(&()));
        if !is_own {
            return Err(WriteError::SecretTaken(name));
        }
        login_secret::trim(&mut secret);
        Ok(Some(LoginSecret(secret.data.unwrap_or_default())))
    }

    /// Writes the Secret of a consumer. It is deleted with the resource.
    pub(crate) async fn write_login(
        &self,
        consumer: &SvcConsumer,
        login: &LoginSecret,
    ) -> Result<(), kube::Error> {
        let metadata = ObjectMeta {
            name: Some(login_secret::name(&consumer.name_any())),
            labels: Some([(login_secret::LABEL.to_owned(), consumer.name_any())].into()),
            owner_references: Some(consumer.owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        };
        self.apply_secret(&self.secrets_of(consumer), metadata, login.0.clone()).await
    }

    /// Deletes the Secret of a consumer.
    pub(crate) async fn delete_login(&self, consumer: &SvcConsumer) -> Result<(), WriteError> {
        if self.login(consumer).await?.is_none() {
            return Ok(());
        }
        let name = login_secret::name(&consumer.name_any());
        Ok(unless_absent(self.secrets_of(consumer).delete(&name, &DeleteParams::default()).await)?)
    }

    fn secrets_of(&self, consumer: &SvcConsumer) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &consumer.namespace().unwrap_or_default())
    }
}
