//! The projection of account status. An older version never overwrites a newer one.

use contract::identity::SecondFactorPolicy;
use contract::internal::{SubjectRecord, TenantRecord};
use contract::{Role, TenantStatus, UserStatus};
use database::{Database, Error, TenantTx};
use tenancy::{SessionId, TenantId, UserId};

use crate::domain::account_status::{AccountStatus, AccountVersions};

/// Saves the status of a tenant, unless the stored version is equal or newer. Returns whether the row changed.
pub(crate) async fn apply_tenant(tx: &mut TenantTx, record: &TenantRecord) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- account_status.apply_tenant
        insert into session.tenants as stored
            (tenant_id, status, session_version, events_per_second, bytes_per_second, version, is_deleted, second_factor)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (tenant_id) do update set
            status = excluded.status,
            session_version = excluded.session_version,
            events_per_second = excluded.events_per_second,
            bytes_per_second = excluded.bytes_per_second,
            second_factor = excluded.second_factor,
            version = excluded.version,
            is_deleted = excluded.is_deleted
        where excluded.version > stored.version",
        record.tenant_id.as_str(),
        record.status.as_str(),
        record.session_version,
        record.quota.events_per_second.map(u32::cast_signed),
        record.quota.bytes_per_second.map(u32::cast_signed),
        record.version,
        record.is_deleted,
        record.second_factor.as_str(),
    );
    Ok(tx.execute(statement).await? > 0)
}

/// Lists the ids of all tenants.
pub(crate) async fn list_tenants(database: &Database) -> Result<Vec<TenantId>, Error> {
    let ids = sqlx::query_scalar!(
        r#"-- account_status.list_tenants
        select session.list_tenants() as "tenant_id!: TenantId""#
    );
    Ok(ids.fetch_all(database.pool()).await?)
}

/// Saves the status of a user, unless the stored version is equal or newer. Returns whether the row changed.
pub(crate) async fn apply_subject(tx: &mut TenantTx, record: &SubjectRecord) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- account_status.apply_subject
        insert into session.subjects as stored
            (user_id, tenant_id, role, status, credential_version, kept_session_id, version, is_deleted, has_factor)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        on conflict (user_id) do update set
            role = excluded.role,
            status = excluded.status,
            credential_version = excluded.credential_version,
            kept_session_id = excluded.kept_session_id,
            has_factor = excluded.has_factor,
            version = excluded.version,
            is_deleted = excluded.is_deleted
        where excluded.version > stored.version",
        record.user_id.0,
        record.tenant_id.as_str(),
        record.role.as_str(),
        record.status.as_str(),
        record.credential_version,
        record.kept_session_id.map(|id| id.0),
        record.version,
        record.is_deleted,
        record.has_factor,
    );
    Ok(tx.execute(statement).await? > 0)
}

/// Returns the status of a user; `None` if the user is deleted. Locks the user's row, so that concurrent changes of one user's
/// sessions are serialized.
pub(crate) async fn find_for_update(
    tx: &mut TenantTx,
    user_id: UserId,
) -> Result<Option<AccountStatus>, Error> {
    find_since_for_update(tx, user_id, 0, 0).await
}

/// Like [`find_for_update`]; also `None` if the stored version of the tenant or the user is older. Then the row can be locked.
pub(crate) async fn find_since_for_update(
    tx: &mut TenantTx,
    user_id: UserId,
    tenant_version: i64,
    subject_version: i64,
) -> Result<Option<AccountStatus>, Error> {
    let row = sqlx::query!(
        r#"-- account_status.find_for_update
        select
            subjects.credential_version,
            tenants.session_version,
            subjects.role as "role: Role",
            subjects.status as "user_status: UserStatus",
            tenants.status as "tenant_status: TenantStatus",
            subjects.kept_session_id as "kept_session_id: SessionId",
            subjects.has_factor,
            tenants.second_factor as "second_factor: SecondFactorPolicy"
        from session.subjects
        join session.tenants using (tenant_id)
        where subjects.user_id = $1 and not subjects.is_deleted and tenants.version >= $2 and subjects.version >= $3
        for update of subjects"#,
        user_id.0,
        tenant_version,
        subject_version
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| AccountStatus {
        versions: AccountVersions {
            user_id,
            credential_version: row.credential_version,
            session_version: row.session_version,
        },
        role: row.role,
        user_status: row.user_status,
        tenant_status: row.tenant_status,
        kept_session_id: row.kept_session_id,
        needs_factor: row.has_factor || row.second_factor.requires(row.role),
    }))
}

/// Locks the tenant's row. Sessions can still be created.
pub(crate) async fn lock_tenant(tx: &mut TenantTx) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- account_status.lock_tenant
        select from session.tenants where tenant_id = $1 for no key update",
        tx.tenant_id().as_str()
    );
    tx.execute(statement).await.map(drop)
}

/// Returns whether the tenant of the transaction exists and is not deleted.
pub(crate) async fn has_tenant(tx: &mut TenantTx) -> Result<bool, Error> {
    let exists = sqlx::query_scalar!(
        r#"-- account_status.has_tenant
        select exists (select from session.tenants where tenant_id = $1 and not is_deleted) as "exists!""#,
        tx.tenant_id().as_str()
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(exists)
}

/// Returns whether the tenant has a record of this user, who is not deleted.
pub(crate) async fn has_subject(tx: &mut TenantTx, user_id: UserId) -> Result<bool, Error> {
    let exists = sqlx::query_scalar!(
        r#"-- account_status.has_subject
        select exists (select from session.subjects where user_id = $1 and not is_deleted) as "exists!""#,
        user_id.0
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(exists)
}
