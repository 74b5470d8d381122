//! Tenants that a Kubernetes resource owns.

use chrono::{DateTime, Utc};
use contract::identity::InviteStatus;
use contract::managed::{Claim, OperatorId, Owner, StoredInvite, StoredTenant};
use database::{Database, Error, TenantTx};
use sqlx::types::Text;
use tenancy::{InviteId, TenantId};
use uuid::Uuid;

use crate::domain::ownership::Ownership;

/// A row of `identity.list_managed_tenants`.
struct ManagedTenantRow {
    tenant_id: TenantId,
    owner_uid: Uuid,
    generation: i64,
    is_drifted: bool,
    invite_status: InviteStatus,
    invite_expires_at: Option<DateTime<Utc>>,
}

impl ManagedTenantRow {
    fn stored(self, now: DateTime<Utc>) -> StoredTenant {
        let invite = self.invite_expires_at.map(|expires_at| {
            let status = match self.invite_status {
                InviteStatus::Pending if expires_at <= now => InviteStatus::Expired,
                status => status,
            };
            StoredInvite { status, expires_at }
        });
        StoredTenant {
            tenant_id: self.tenant_id,
            owner: Owner { uid: self.owner_uid, generation: self.generation },
            is_drifted: self.is_drifted,
            invite,
        }
    }
}

/// Finds the ownership of the tenant of the transaction.
pub(crate) async fn find(tx: &mut TenantTx) -> Result<Option<Ownership>, Error> {
    let row = sqlx::query!(
        r#"-- managed_tenant.find
        select
            operator_id as "operator_id: Text<OperatorId>", owner_uid, generation,
            invite_id as "invite_id: InviteId", invite_expires_at, released_at, taken_over_at
        from identity.managed_tenants
        where tenant_id = $1"#,
        tx.tenant_id().as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| Ownership {
        claim: Claim {
            operator: row.operator_id.0,
            owner: Owner { uid: row.owner_uid, generation: row.generation },
        },
        invite_id: row.invite_id,
        invite_expires_at: row.invite_expires_at,
        released_at: row.released_at,
        taken_over_at: row.taken_over_at,
    }))
}

/// Saves the ownership of the tenant of the transaction, with the present version of the tenant.
pub(crate) async fn save(tx: &mut TenantTx, ownership: &Ownership) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- managed_tenant.save
        insert into identity.managed_tenants
            (
                tenant_id, operator_id, owner_uid, generation, tenant_version, invite_id, invite_expires_at,
                released_at, taken_over_at
            )
        select tenant_id, $2, $3, $4, version, $5, $6, $7, $8
        from identity.tenants
        where tenant_id = $1
        on conflict (tenant_id) do update set
            operator_id = excluded.operator_id,
            owner_uid = excluded.owner_uid,
            generation = excluded.generation,
            tenant_version = excluded.tenant_version,
            invite_id = excluded.invite_id,
            invite_expires_at = excluded.invite_expires_at,
            released_at = excluded.released_at,
            taken_over_at = excluded.taken_over_at",
        tx.tenant_id().as_str(),
        ownership.claim.operator.to_string(),
        ownership.claim.owner.uid,
        ownership.claim.owner.generation,
        ownership.invite_id.map(|id| id.0),
        ownership.invite_expires_at,
        ownership.released_at,
        ownership.taken_over_at
    );
    tx.execute(statement).await.map(drop)
}

/// Lists the tenants of an operator after a given one.
pub(crate) async fn list(
    database: &Database,
    operator: &OperatorId,
    after: &str,
    limit: i32,
    now: DateTime<Utc>,
) -> Result<Vec<StoredTenant>, Error> {
    let rows = sqlx::query_as!(
        ManagedTenantRow,
        r#"-- managed_tenant.list
        select
            tenant_id as "tenant_id!: TenantId", owner_uid as "owner_uid!", generation as "generation!",
            is_drifted as "is_drifted!", invite_status as "invite_status!: InviteStatus", invite_expires_at
        from identity.list_managed_tenants($1, $2, $3)"#,
        operator.to_string(),
        after,
        limit
    )
    .fetch_all(database.pool())
    .await?;
    Ok(rows.into_iter().map(|row| row.stored(now)).collect())
}
