//! Tenants.

use chrono::{DateTime, Utc};
use contract::TenantStatus;
use contract::identity::{Quota, Tenant};
use contract::internal::TenantRecord;
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

/// The tenant of the transaction, locked until it ends.
pub(crate) async fn find_locked(tx: &mut TenantTx, tenant_id: &TenantId) -> Result<Option<Tenant>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"-- tenant.find_locked
        select
            tenant_id as "tenant_id: TenantId", display_name, status, events_per_second, bytes_per_second, created_at
        from identity.tenants
        where tenant_id = $1
        for update"#,
        tenant_id.as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(Into::into))
}

/// Writes a tenant's name, status and quota; with `ends_sessions`, every session made before is dead.
pub(crate) async fn update(
    tx: &mut TenantTx,
    tenant: &Tenant,
    ends_sessions: bool,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- tenant.update
        update identity.tenants
        set display_name = $2, status = $3, events_per_second = $4, bytes_per_second = $5,
            session_version = session_version + $6, version = version + 1, updated_at = $7
        where tenant_id = $1",
        tenant.tenant_id.as_str(),
        tenant.display_name,
        tenant.status.as_str(),
        tenant.quota.events_per_second.map(u32::cast_signed),
        tenant.quota.bytes_per_second.map(u32::cast_signed),
        i64::from(ends_sessions),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// A tenant's standing, for session.
pub(crate) async fn record(tx: &mut TenantTx, tenant_id: &TenantId) -> Result<Option<TenantRecord>, Error> {
    let row = sqlx::query!(
        "-- tenant.record
        select status, session_version, events_per_second, bytes_per_second, version
        from identity.tenants
        where tenant_id = $1",
        tenant_id.as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| TenantRecord {
        tenant_id: tenant_id.clone(),
        status: status(&row.status),
        session_version: row.session_version,
        quota: quota(row.events_per_second, row.bytes_per_second),
        producers: Vec::new(),
        version: row.version,
    }))
}

/// Whether there is such a tenant.
pub(crate) async fn exists(tx: &mut TenantTx, tenant_id: &TenantId) -> Result<bool, Error> {
    let exists = sqlx::query_scalar!(
        r#"-- tenant.exists
        select exists (select from identity.tenants where tenant_id = $1) as "exists!""#,
        tenant_id.as_str()
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(exists)
}
