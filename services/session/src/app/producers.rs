//! Producers: the operator stores, lists and deletes them. ingest introspects them like other credentials.

use audit::{Actor, AuditEvent, EventName};
use authn::service_account_digest;
use bus::Invalidation;
use contract::ProblemKind;
use contract::managed::{
    Claim, Conflict, ManagedProducer, OperatorId, Owner, Producer, ProducerDeletion, StoredProducer,
    is_dns_name,
};
use service::Problem;
use service::http::WriteError;
use uuid::Uuid;

use super::App;
use crate::domain::api_key::are_source_ids;
use crate::store::{account_status, producer};

/// Producers in one response of the list.
const PAGE: i32 = 1000;

impl App {
    /// Stores a producer. An equal one is not written again. The producer of an operator that is taken over is replaced.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn put_producer(
        &self,
        uid: Uuid,
        by: &OperatorId,
        write: &ManagedProducer,
    ) -> Result<(), WriteError> {
        let new = &write.producer;
        validate(new)?;
        let mut tx = self.begin(&new.tenant_id, Actor::System).await?;
        if !account_status::has_tenant(&mut tx).await? {
            return Err(Conflict::TenantNotFound.into());
        }
        let found = producer::find_for_update(&mut tx, uid).await?;
        let claim = Claim { operator: by.clone(), owner: Owner { uid, generation: new.generation } };
        let is_changed = found.as_ref().map_or(Ok(true), |found| found.accept(&claim, write, tx.now()))?;
        if !is_changed {
            return Ok(());
        }
        let digest = service_account_digest(&new.service_account);
        if let Some(other) = producer::find_other_for_update(&mut tx, uid, &digest).await? {
            other.claim.require_next(&claim, &write.take_over_from, Conflict::ServiceAccountTaken)?;
            producer::delete(&mut tx, other.claim.owner.uid).await?;
        }
        match producer::save(&mut tx, uid, &digest, by, new, found.is_some()).await {
            Ok(true) => {}
            Ok(false) => return Err(Conflict::Stale.into()),
            Err(error) if error.violates(producer::DIGEST_KEY) => {
                return Err(Conflict::ServiceAccountTaken.into());
            }
            Err(error) => return Err(error.into()),
        }
        let before = found.iter().map(|found| &found.producer);
        for account in before.chain([new]).map(|producer| &producer.service_account) {
            self.invalidate(&mut tx, Invalidation::Credential(service_account_digest(account)));
        }
        tx.audit(changed(new, "producer_changed"));
        Ok(tx.commit().await?)
    }

    /// Deletes a producer of a tenant. Its service account can send no events any more. A repeated call succeeds.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn delete_producer(
        &self,
        uid: Uuid,
        by: &OperatorId,
        deletion: ProducerDeletion,
    ) -> Result<(), WriteError> {
        let mut tx = self.begin(&deletion.tenant_id, Actor::System).await?;
        let found = producer::find_for_update(&mut tx, uid).await?.filter(|found| found.deleted_at.is_none());
        let Some(found) = found else { return Ok(()) };
        found.claim.require_operator(by, &[])?;
        if deletion.is_final {
            producer::mark_deleted(&mut tx, uid).await?;
        } else {
            producer::delete(&mut tx, uid).await?;
        }
        let account = &found.producer.service_account;
        self.invalidate(&mut tx, Invalidation::Credential(service_account_digest(account)));
        tx.audit(changed(&found.producer, "producer_deleted"));
        Ok(tx.commit().await?)
    }

    /// Lists the producers of an operator after a given one, in the order of their uids.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_producers(
        &self,
        by: &OperatorId,
        after: Uuid,
    ) -> Result<Vec<StoredProducer>, Problem> {
        Ok(producer::list(&self.database, by, after, PAGE).await?)
    }
}

fn changed(producer: &Producer, about: &'static str) -> AuditEvent {
    let digest = service_account_digest(&producer.service_account);
    AuditEvent::new(EventName::AuthzAdmin).about(about).credential(&digest)
}

/// The operator sends valid producers only, because the API server validates the resources.
fn validate(producer: &Producer) -> Result<(), ProblemKind> {
    let account = &producer.service_account;
    let is_valid =
        is_dns_name(&account.namespace) && is_dns_name(&account.name) && are_source_ids(&producer.source_ids);
    if is_valid { Ok(()) } else { Err(ProblemKind::ValidationFailed) }
}
