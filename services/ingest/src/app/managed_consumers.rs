//! Consumers that the operator manages. The owner of a consumer is in the metadata of its durable. A consumer of another owner, or without
//! one, is never changed.

use std::time::Duration;

use bus::{Created, Durable, DurableDefinition, DurableError, Durables};
use contract::ProblemKind;
use contract::consumers::CreateConsumer;
use contract::internal::IngestChange;
use contract::managed::{
    Claim, Conflict, ConsumerLag, ConsumerReference, IssuedLogin, ManagedConsumer, OperatorId, Owner,
    StoredConsumer, WrittenConsumer,
};
use contract::{FieldError, Secret};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hashing::{SystemEntropy, TokenDigest};
use service::Problem;
use service::http::WriteError;
use tenancy::Actor;
use uuid::Uuid;

use super::App;
use super::consumers::{definition, problem};

/// Consumers in one response of the list.
const PAGE: usize = 1000;
/// Measurements of a list at the same time.
const MEASUREMENTS: usize = 16;

impl App {
    /// Lists the consumers of an operator after a given one, in the order of the uids of their resources.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(crate) async fn list_managed_consumers(
        &self,
        by: &OperatorId,
        after: Uuid,
    ) -> Result<Vec<StoredConsumer>, Problem> {
        let durables = self.durables().await?;
        let found = durables.list().await.map_err(problem)?.into_iter();
        let managed = found.filter_map(|durable| Some((claim_of(&durable)?, durable)));
        let mut managed: Vec<_> =
            managed.filter(|(claim, _)| claim.operator == *by && claim.owner.uid > after).collect();
        managed.sort_by_key(|(claim, _)| claim.owner.uid);
        managed.truncate(PAGE);
        let durables = &durables;
        let measured = stream::iter(managed)
            .map(async |(claim, durable)| self.with_lag(durables, claim.owner, &durable).await)
            .buffered(MEASUREMENTS);
        measured.try_collect().await
    }

    /// Creates a consumer with a login, or changes one of the same resource. An equal one is not changed. The login is absent if the
    /// consumer exists.
    ///
    /// # Errors
    /// 422 for an invalid definition, 503 without the broker or an audit event.
    pub(crate) async fn put_managed_consumer(
        &self,
        uid: Uuid,
        operator: OperatorId,
        write: ManagedConsumer,
    ) -> Result<WrittenConsumer, WriteError> {
        let ManagedConsumer { consumer, generation, take_over_from } = write;
        let new = definition(&consumer, self.clock.now())?;
        let claim = Claim { operator, owner: Owner { uid, generation } };
        let (durables, name) = (self.durables().await?, consumer.name.as_str());
        let (mut change, mut is_equal) = (IngestChange::ConsumerCreated, false);
        if let Some(durable) = durables.get(name).await.map_err(problem)? {
            let stored = claim_of(&durable).ok_or(Conflict::ConsumerTaken)?;
            stored.require_next(&claim, &take_over_from, Conflict::ConsumerTaken)?;
            if let Some(error) = unchangeable(&durable.definition, &new) {
                return Err(Problem::new(ProblemKind::ValidationFailed).fields(vec![error]).into());
            }
            change = IngestChange::ConsumerChanged;
            is_equal = stored == claim && durable.definition == new && durable.login.is_some();
        }
        if !is_equal {
            let tenant_id = consumer.tenant_id.as_ref();
            self.record_change(tenant_id, Actor::System, change, Some(&consumer.name)).await?;
        }
        let text = serde_json::to_string(&claim)
            .map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?;
        let created = match durables.put_owned(name, &new, &text, &SystemEntropy).await {
            Err(DurableError::Exists) => return Err(Conflict::ConsumerTaken.into()),
            result => result.map_err(problem)?,
        };
        tracing::info!(consumer = name, %uid, is_new = created.password.is_some(), "consumer of a resource written");
        Ok(self.written(&durables, claim.owner, created).await?)
    }

    /// Replaces the login of a consumer.
    ///
    /// # Errors
    /// 404 if the resource has no consumer of this name, 503 without the broker or an audit event.
    pub(crate) async fn renew_managed_login(
        &self,
        uid: Uuid,
        by: &OperatorId,
        of: &ConsumerReference,
    ) -> Result<WrittenConsumer, WriteError> {
        let durables = self.durables().await?;
        let (owner, durable) = find(&durables, uid, by, of).await?.ok_or(ProblemKind::NotFound)?;
        self.record_managed(&durable, IngestChange::ConsumerLoginReplaced, of).await?;
        let name = of.name.as_str();
        let replaced = durables.replace_login(name, &SystemEntropy).await.map_err(problem)?;
        tracing::info!(consumer = name, %uid, "login of consumer replaced");
        Ok(self.written(&durables, owner, replaced.ok_or(ProblemKind::NotFound)?).await?)
    }

    /// Deletes a consumer of a resource, or its login only. A repeated call succeeds.
    ///
    /// # Errors
    /// 503 without the broker or an audit event.
    pub(crate) async fn delete_managed_consumer(
        &self,
        uid: Uuid,
        by: &OperatorId,
        of: &ConsumerReference,
    ) -> Result<(), WriteError> {
        let durables = self.durables().await?;
        let Some((_, durable)) = find(&durables, uid, by, of).await? else { return Ok(()) };
        let change =
            if of.is_final { IngestChange::ConsumerDeleted } else { IngestChange::ConsumerLoginRemoved };
        self.record_managed(&durable, change, of).await?;
        if of.is_final {
            durables.delete(of.name.as_str()).await.map_err(problem)?;
        } else {
            durables.remove_login(durable).await.map_err(problem)?;
        }
        self.logins().apply().await;
        tracing::info!(consumer = %of.name, %uid, is_final = of.is_final, "consumer of a resource deleted, or its login");
        Ok(())
    }

    /// Records a change of the operator.
    async fn record_managed(
        &self,
        durable: &Durable,
        change: IngestChange,
        of: &ConsumerReference,
    ) -> Result<(), Problem> {
        let tenant_id = durable.definition.filter.tenant_id.as_ref();
        self.record_change(tenant_id, Actor::System, change, Some(&of.name)).await
    }

    /// Returns a written consumer, with its login if it has a new one.
    async fn written(
        &self,
        durables: &Durables,
        owner: Owner,
        created: Created,
    ) -> Result<WrittenConsumer, Problem> {
        let login = match &created.password {
            Some(password) => {
                let active = self.activate(&created.durable, password).await;
                Some(IssuedLogin { password: Secret::new(password.expose()), active })
            }
            None => None,
        };
        // Without a request to the broker for a new login, which would be lost if it failed.
        let stored = match login {
            Some(_) => stored(owner, &created.durable, Duration::ZERO)?,
            None => self.with_lag(durables, owner, &created.durable).await?,
        };
        Ok(WrittenConsumer { stored, login })
    }

    async fn with_lag(
        &self,
        durables: &Durables,
        owner: Owner,
        durable: &Durable,
    ) -> Result<StoredConsumer, Problem> {
        let age = durables.oldest_unread_age(durable, self.clock.now()).await.map_err(problem)?;
        stored(owner, durable, age)
    }
}

/// Returns the last write of an operator, which is in the metadata of the durable.
fn claim_of(durable: &Durable) -> Option<Claim> {
    serde_json::from_str(durable.owner.as_deref()?).ok()
}

/// Returns the durable of a resource.
async fn find(
    durables: &Durables,
    uid: Uuid,
    by: &OperatorId,
    of: &ConsumerReference,
) -> Result<Option<(Owner, Durable)>, WriteError> {
    let found = durables.get(of.name.as_str()).await.map_err(problem)?;
    let managed = found.and_then(|durable| Some((claim_of(&durable)?, durable)));
    let Some((claim, durable)) = managed.filter(|(claim, _)| claim.owner.uid == uid) else { return Ok(None) };
    claim.require_operator(by, &[])?;
    Ok(Some((claim.owner, durable)))
}

/// The API server rejects such a change of a resource, so another write has created the durable.
fn unchangeable(stored: &DurableDefinition, new: &DurableDefinition) -> Option<FieldError> {
    let field = if stored.filter.tenant_id != new.filter.tenant_id {
        "/tenant_id"
    } else if stored.start != new.start {
        "/start"
    } else if stored.filter.partitions != new.filter.partitions {
        "/partitions"
    } else {
        return None;
    };
    let message = "cannot be changed: delete the consumer and create another one".to_owned();
    Some(FieldError { pointer: field.to_owned(), code: "invalid_value".into(), message })
}

fn stored(owner: Owner, durable: &Durable, oldest: Duration) -> Result<StoredConsumer, Problem> {
    let DurableDefinition { filter, start, ack_wait_seconds, max_ack_pending } = durable.definition.clone();
    let name = durable.name.parse().map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?;
    Ok(StoredConsumer {
        owner,
        consumer: CreateConsumer {
            name,
            all_tenants: filter.tenant_id.is_none(),
            tenant_id: filter.tenant_id,
            event_types: filter.event_types,
            partitions: filter.partitions,
            start: Some(start),
            ack_wait_seconds,
            max_ack_pending,
        },
        streams: durable.streams.clone(),
        login_digest: durable.login.as_ref().and_then(|login| login.digest).map(TokenDigest::to_hex),
        lag: ConsumerLag {
            pending: durable.pending,
            ack_pending: durable.ack_pending,
            oldest_unread_seconds: oldest.as_secs(),
        },
    })
}
