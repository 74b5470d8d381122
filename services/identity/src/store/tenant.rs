//! Tenants.

use chrono::{DateTime, Utc};
use contract::TenantStatus;
use contract::identity::{Quota, Tenant};
use database::{Database, Error, TenantTx};
use tenancy::TenantId;

/// The name of the constraint that refuses a second tenant with the same id.
pub(crate) const PRIMARY_KEY: &str = "tenants_pkey";

struct Row {
    tenant_id: TenantId,
    display_name: String,
    status: String,
    events_per_second: Option<i32>,
    bytes_per_second: Option<i32>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Tenant {
    fn from(row: Row) -> Self {
        Self {
            tenant_id: row.tenant_id,
            display_name: row.display_name,
            status: status(&row.status),
            quota: quota(row.events_per_second, row.bytes_per_second),
            created_at: row.created_at,
            invite: None,
        }
    }
}

/// A constraint of the table keeps other words out; should one come all the same, it lets nobody in.
pub(crate) fn status(text: &str) -> TenantStatus {
    text.parse().unwrap_or(TenantStatus::Suspended)
}

pub(crate) fn quota(events: Option<i32>, bytes: Option<i32>) -> Quota {
    Quota {
        events_per_second: events.map(i32::cast_unsigned),
        bytes_per_second: bytes.map(i32::cast_unsigned),
    }
}

/// Writes a new tenant.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    tenant_id: &TenantId,
    display_name: &str,
    quota: &Quota,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- tenant.insert
        insert into identity.tenants
            (tenant_id, display_name, status, events_per_second, bytes_per_second, created_at, updated_at)
        values ($1, $2, 'active', $3, $4, $5, $5)",
        tenant_id.as_str(),
        display_name,
        quota.events_per_second.map(u32::cast_signed),
        quota.bytes_per_second.map(u32::cast_signed),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// The tenant of the transaction.
pub(crate) async fn find(tx: &mut TenantTx, tenant_id: &TenantId) -> Result<Option<Tenant>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"-- tenant.find
        select
            tenant_id as "tenant_id: TenantId", display_name, status, events_per_second, bytes_per_second, created_at
        from identity.tenants
        where tenant_id = $1"#,
        tenant_id.as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(Into::into))
}

/// All tenants after a given one, for the operator.
pub(crate) async fn list(database: &Database, after: &str, limit: i64) -> Result<Vec<Tenant>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"-- tenant.list
        select
            tenant_id as "tenant_id!: TenantId", display_name as "display_name!", status as "status!",
            events_per_second, bytes_per_second, created_at as "created_at!"
        from identity.list_tenants($1, $2)"#,
        after,
        i32::try_from(limit).unwrap_or(i32::MAX)
    )
    .fetch_all(database.pool())
    .await?;
    Ok(rows.into_iter().map(Into::into).collect())
}
