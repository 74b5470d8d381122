//! Tenants.

use chrono::{DateTime, Utc};
use contract::TenantStatus;
use contract::identity::{Quota, SecondFactorPolicy, Tenant};
use contract::internal::TenantRecord;
use database::{Database, Error, TenantTx};
use tenancy::TenantId;

/// The constraint that rejects a second tenant with the same id.
pub(crate) const PRIMARY_KEY: &str = "tenants_pkey";

struct TenantRow {
    tenant_id: TenantId,
    display_name: String,
    status: TenantStatus,
    events_per_second: Option<i32>,
    bytes_per_second: Option<i32>,
    second_factor: SecondFactorPolicy,
    password_min_length: Option<i32>,
    passkey_login: bool,
    created_at: DateTime<Utc>,
}

impl TryFrom<TenantRow> for Tenant {
    type Error = Error;

    fn try_from(row: TenantRow) -> Result<Self, Error> {
        Ok(Self {
            tenant_id: row.tenant_id,
            display_name: row.display_name,
            status: row.status,
            quota: quota(row.events_per_second, row.bytes_per_second)?,
            second_factor: row.second_factor,
            password_min_length: length(row.password_min_length)?,
            passkey_login: row.passkey_login,
            created_at: row.created_at,
            invite: None,
        })
    }
}

/// Decodes the quota of a tenant.
pub(crate) fn quota(events: Option<i32>, bytes: Option<i32>) -> Result<Quota, Error> {
    let decode = |column: &str, value: Option<i32>| {
        value.map(u32::try_from).transpose().map_err(|error| Error::corrupt(column, error))
    };
    Ok(Quota {
        events_per_second: decode("tenants.events_per_second", events)?,
        bytes_per_second: decode("tenants.bytes_per_second", bytes)?,
    })
}

/// Decodes a minimum length of passwords; 0 if the tenant has no own one.
fn length(stored: Option<i32>) -> Result<u32, Error> {
    u32::try_from(stored.unwrap_or(0)).map_err(|error| Error::corrupt("tenants.password_min_length", error))
}

/// The column of a minimum length of passwords.
fn length_column(tenant: &Tenant) -> Option<i32> {
    Some(tenant.password_min_length.cast_signed()).filter(|length| *length > 0)
}

/// Inserts the tenant of the transaction.
pub(crate) async fn insert(tx: &mut TenantTx, tenant: &Tenant) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- tenant.insert
        insert into identity.tenants
            (
                tenant_id, display_name, status, events_per_second, bytes_per_second, second_factor, password_min_length,
                passkey_login, created_at, updated_at
            )
        values ($1, $2, 'active', $3, $4, $5, $6, $7, $8, $8)",
        tx.tenant_id().as_str(),
        tenant.display_name,
        tenant.quota.events_per_second.map(u32::cast_signed),
        tenant.quota.bytes_per_second.map(u32::cast_signed),
        tenant.second_factor.as_str(),
        length_column(tenant),
        tenant.passkey_login,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
}

/// Selects the tenant of the transaction: the span name of the statement, its end, and the transaction.
macro_rules! select_tenant {
    ($name:literal, $end:literal, $tx:ident) => {
        sqlx::query_as!(
            TenantRow,
            "-- " + $name + r#"
            select
                tenant_id as "tenant_id: TenantId", display_name, status as "status: TenantStatus", events_per_second,
                bytes_per_second, second_factor as "second_factor: SecondFactorPolicy", password_min_length,
                passkey_login, created_at
            from identity.tenants
            where tenant_id = $1 and status <> 'deleted' "# + $end,
            $tx.tenant_id().as_str()
        )
        .fetch_optional($tx.connection())
        .await?
        .map(Tenant::try_from)
        .transpose()
    };
}

/// Finds the tenant of the transaction.
pub(crate) async fn find(tx: &mut TenantTx) -> Result<Option<Tenant>, Error> {
    select_tenant!("tenant.find", "", tx)
}

/// Finds the tenant of the transaction and locks it until the transaction ends.
pub(crate) async fn find_for_update(tx: &mut TenantTx) -> Result<Option<Tenant>, Error> {
    select_tenant!("tenant.find_for_update", "for update", tx)
}

/// Lists all tenants after a given one, for the platform administrator.
pub(crate) async fn list(database: &Database, after: &str, limit: i64) -> Result<Vec<Tenant>, Error> {
    let rows = sqlx::query_as!(
        TenantRow,
        r#"-- tenant.list
        select
            tenant_id as "tenant_id!: TenantId", display_name as "display_name!", status as "status!: TenantStatus",
            events_per_second, bytes_per_second, second_factor as "second_factor!: SecondFactorPolicy",
            password_min_length, passkey_login as "passkey_login!", created_at as "created_at!"
        from identity.list_tenants($1, $2)"#,
        after,
        i32::try_from(limit).unwrap_or(i32::MAX)
    )
    .fetch_all(database.pool())
    .await?;
    rows.into_iter().map(Tenant::try_from).collect()
}

/// Updates name, status, quota and the rules for logins. With `revokes_sessions`, all sessions of the tenant are revoked.
pub(crate) async fn update(tx: &mut TenantTx, tenant: &Tenant, revokes_sessions: bool) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- tenant.update
        update identity.tenants
        set display_name = $2, status = $3, events_per_second = $4, bytes_per_second = $5,
            session_version = session_version + $6, version = version + 1, updated_at = $7,
            second_factor = $8, password_min_length = $9, passkey_login = $10
        where tenant_id = $1",
        tenant.tenant_id.as_str(),
        tenant.display_name,
        tenant.status.as_str(),
        tenant.quota.events_per_second.map(u32::cast_signed),
        tenant.quota.bytes_per_second.map(u32::cast_signed),
        i64::from(revokes_sessions),
        tx.now(),
        tenant.second_factor.as_str(),
        length_column(tenant),
        tenant.passkey_login
    );
    tx.execute(statement).await.map(drop)
}

/// Finds the account status of the tenant or of a deleted one, for the session service.
pub(crate) async fn find_record(tx: &mut TenantTx) -> Result<Option<TenantRecord>, Error> {
    let row = sqlx::query!(
        r#"-- tenant.find_record
        select
            case when status = 'deleted' then 'suspended' else status end as "status!: TenantStatus",
            status = 'deleted' as "is_deleted!", session_version, events_per_second, bytes_per_second, version,
            second_factor as "second_factor: SecondFactorPolicy"
        from identity.tenants
        where tenant_id = $1"#,
        tx.tenant_id().as_str()
    )
    .fetch_optional(tx.connection())
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(TenantRecord {
        tenant_id: tx.tenant_id().clone(),
        status: row.status,
        session_version: row.session_version,
        quota: quota(row.events_per_second, row.bytes_per_second)?,
        second_factor: row.second_factor,
        is_deleted: row.is_deleted,
        version: row.version,
    }))
}

/// Returns whether the tenant of the transaction exists.
pub(crate) async fn exists(tx: &mut TenantTx) -> Result<bool, Error> {
    let exists = sqlx::query_scalar!(
        r#"-- tenant.exists
        select exists (select from identity.tenants where tenant_id = $1 and status <> 'deleted') as "exists!""#,
        tx.tenant_id().as_str()
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(exists)
}
