//! Producers: Kubernetes service accounts that may send events.

use chrono::{DateTime, Utc};
use contract::managed::{Claim, OperatorId, Owner, Producer, ServiceAccount, StoredProducer};
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use sqlx::types::Text;
use tenancy::TenantId;
use uuid::Uuid;

use crate::domain::producer::ProducerRecord;

/// The index that rejects a second producer with the same service account.
pub(crate) const DIGEST_KEY: &str = "producers_digest_key";

/// A row of the table.
struct ProducerRow {
    producer_id: Uuid,
    operator_id: Text<OperatorId>,
    namespace: String,
    service_account: String,
    source_ids: Vec<String>,
    generation: i64,
    deleted_at: Option<DateTime<Utc>>,
}

impl ProducerRow {
    fn into_record(self, tenant_id: &TenantId) -> ProducerRecord {
        let producer = Producer {
            tenant_id: tenant_id.clone(),
            service_account: ServiceAccount { namespace: self.namespace, name: self.service_account },
            source_ids: self.source_ids,
            generation: self.generation,
        };
        let owner = Owner { uid: self.producer_id, generation: self.generation };
        let claim = Claim { operator: self.operator_id.0, owner };
        ProducerRecord { claim, producer, deleted_at: self.deleted_at }
    }
}

/// Saves a producer. Without `replaces`, a row that another transaction has inserted meanwhile does not change. Returns whether it was
/// saved.
pub(crate) async fn save(
    tx: &mut TenantTx,
    uid: Uuid,
    digest: &TokenDigest,
    operator: &OperatorId,
    producer: &Producer,
    replaces: bool,
) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- producer.save
        insert into session.producers as stored
            (
                producer_id, tenant_id, operator_id, namespace, service_account, digest, source_ids, generation, created_at,
                updated_at
            )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
        on conflict (producer_id) do update set
            operator_id = excluded.operator_id,
            namespace = excluded.namespace,
            service_account = excluded.service_account,
            digest = excluded.digest,
            source_ids = excluded.source_ids,
            generation = excluded.generation,
            updated_at = excluded.updated_at,
            deleted_at = null
        where $10",
        uid,
        tx.tenant_id().as_str(),
        operator.to_string(),
        producer.service_account.namespace,
        producer.service_account.name,
        digest.as_bytes(),
        &producer.source_ids,
        producer.generation,
        tx.now(),
        replaces
    );
    Ok(tx.execute(statement).await? > 0)
}

/// Selects a producer and locks its row: the span name of the statement, its condition, and the parameters.
macro_rules! select_producer {
    ($name:literal, $condition:literal, $($parameter:expr),+ $(,)?) => {
        sqlx::query_as!(
            ProducerRow,
            "-- " + $name + r#"
            select
                producer_id, operator_id as "operator_id: Text<OperatorId>", namespace, service_account, source_ids, generation,
                deleted_at
            from session.producers
            where "# + $condition + " for update",
            $($parameter),+
        )
    };
}

/// Returns a stored producer, also a deleted one, and locks its row.
pub(crate) async fn find_for_update(tx: &mut TenantTx, uid: Uuid) -> Result<Option<ProducerRecord>, Error> {
    let row = select_producer!("producer.find_for_update", "producer_id = $1", uid);
    Ok(row.fetch_optional(tx.connection()).await?.map(|row| row.into_record(tx.tenant_id())))
}

/// Returns the producer of another resource with the same service account in the tenant, and locks its row.
pub(crate) async fn find_other_for_update(
    tx: &mut TenantTx,
    uid: Uuid,
    digest: &TokenDigest,
) -> Result<Option<ProducerRecord>, Error> {
    let row = select_producer!(
        "producer.find_other_for_update",
        "digest = $2 and deleted_at is null and producer_id <> $1",
        uid,
        digest.as_bytes()
    );
    Ok(row.fetch_optional(tx.connection()).await?.map(|row| row.into_record(tx.tenant_id())))
}

/// Marks a producer as deleted. Its row remains for a day, so that a delayed write does not restore it.
pub(crate) async fn mark_deleted(tx: &mut TenantTx, uid: Uuid) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- producer.mark_deleted
        update session.producers set deleted_at = $2, updated_at = $2 where producer_id = $1 and deleted_at is null",
        uid,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Deletes the row of a producer, which can be stored again.
pub(crate) async fn delete(tx: &mut TenantTx, uid: Uuid) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- producer.delete
        delete from session.producers where producer_id = $1 and deleted_at is null",
        uid
    );
    tx.execute(statement).await.map(drop)
}

/// Lists the producers of an operator, of all tenants, after a given one.
pub(crate) async fn list(
    database: &Database,
    operator: &OperatorId,
    after: Uuid,
    limit: i32,
) -> Result<Vec<StoredProducer>, Error> {
    let rows = sqlx::query!(
        r#"-- producer.list
        select
            producer_id as "producer_id!", tenant_id as "tenant_id!: TenantId", namespace as "namespace!",
            service_account as "service_account!", source_ids as "source_ids!", generation as "generation!"
        from session.list_producers($1, $2, $3)"#,
        operator.to_string(),
        after,
        limit
    )
    .fetch_all(database.pool())
    .await?;
    let stored = rows.into_iter().map(|row| StoredProducer {
        uid: row.producer_id,
        producer: Producer {
            tenant_id: row.tenant_id,
            service_account: ServiceAccount { namespace: row.namespace, name: row.service_account },
            source_ids: row.source_ids,
            generation: row.generation,
        },
    });
    Ok(stored.collect())
}
