//! The projection of users' and tenants' standing. An older version never overwrites a newer one.

use chrono::{DateTime, Utc};
use contract::Role;
use contract::internal::{SubjectRecord, TenantRecord};
use database::{Error, TenantTx};
use sqlx::types::Json;
use tenancy::{SessionId, TenantId, UserId};

use crate::domain::standing::Standing;

/// Takes a tenant's record over, unless it or a newer one is known. Tells whether that changed anything.
pub(crate) async fn take_tenant(tx: &mut TenantTx, record: &TenantRecord) -> Result<bool, Error> {
    let taken = sqlx::query!(
        "-- standing.take_tenant
        insert into session.tenants as known
            (tenant_id, status, session_version, events_per_second, bytes_per_second, producers, version)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict (tenant_id) do update set
            status = excluded.status,
            session_version = excluded.session_version,
            events_per_second = excluded.events_per_second,
            bytes_per_second = excluded.bytes_per_second,
            producers = excluded.producers,
            version = excluded.version
        where excluded.version > known.version",
        record.tenant_id.as_str(),
        record.status.as_str(),
        record.session_version,
        record.quota.events_per_second.map(u32::cast_signed),
        record.quota.bytes_per_second.map(u32::cast_signed),
        Json(&record.producers) as _,
        record.version,
    )
    .execute(tx.connection())
    .await?;
    Ok(taken.rows_affected() > 0)
}

/// Takes a user's record over, unless it or a newer one is known. Tells whether that changed anything.
pub(crate) async fn take_subject(tx: &mut TenantTx, record: &SubjectRecord) -> Result<bool, Error> {
    let taken = sqlx::query!(
        "-- standing.take_subject
        insert into session.subjects as known
            (user_id, tenant_id, role, status, credential_version, kept_session_id, version)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict (user_id) do update set
            role = excluded.role,
            status = excluded.status,
            credential_version = excluded.credential_version,
            kept_session_id = excluded.kept_session_id,
            version = excluded.version
        where excluded.version > known.version",
        record.user_id.0,
        record.tenant_id.as_str(),
        record.role.as_str(),
        record.status.as_str(),
        record.credential_version,
        record.kept_session_id.map(|id| id.0),
        record.version,
    )
    .execute(tx.connection())
    .await?;
    Ok(taken.rows_affected() > 0)
}

/// What a user may do, if a session may be made under this standing, as it is known now: both are active, and neither has
/// moved on. Locks the user's row, so that two logins of one user are counted one after the other.
pub(crate) async fn find_role(tx: &mut TenantTx, standing: &Standing) -> Result<Option<Role>, Error> {
    let role = sqlx::query_scalar!(
        "-- standing.find_role
        select subjects.role
        from session.subjects
        join session.tenants using (tenant_id)
        where subjects.user_id = $1
            and subjects.status = 'active'
            and tenants.status = 'active'
            and subjects.credential_version = $2
            and tenants.session_version = $3
        for update of subjects",
        standing.user_id.0,
        standing.credential_version,
        standing.session_version,
    )
    .fetch_optional(tx.connection())
    .await?;
    // A constraint of the table keeps unknown roles out; should one come all the same, it may do least.
    Ok(role.map(|role| role.parse().unwrap_or(Role::Member)))
}

/// The standing now of a user whose session is live. Locks the user's row, so that what one user does with several sessions
/// is counted one after the other.
pub(crate) async fn find_of_session(
    tx: &mut TenantTx,
    session_id: SessionId,
    now: DateTime<Utc>,
) -> Result<Option<Standing>, Error> {
    let standing = sqlx::query_as!(
        Standing,
        r#"-- standing.find_of_session
        select subjects.user_id as "user_id: UserId", subjects.credential_version, tenants.session_version
        from session.sessions
        join session.subjects using (user_id)
        join session.tenants on tenants.tenant_id = sessions.tenant_id
        where sessions.session_id = $1
            and sessions.revoked_at is null
            and sessions.expires_at > $2
            and sessions.idle_expires_at > $2
            and subjects.status = 'active'
            and tenants.status = 'active'
            and tenants.session_version = sessions.session_version
            and (
                subjects.credential_version = sessions.credential_version
                or subjects.kept_session_id = sessions.session_id
            )
        for update of subjects"#,
        session_id.0,
        now
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(standing)
}

/// Locks a tenant's row against others who lock it; sessions go on being made.
pub(crate) async fn lock_tenant(tx: &mut TenantTx, tenant_id: &TenantId) -> Result<(), Error> {
    sqlx::query!(
        "-- standing.lock_tenant
        select from session.tenants where tenant_id = $1 for no key update",
        tenant_id.as_str()
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Locks a user's row, as whoever makes a session of theirs does, so that what ends all of them misses none. False when the
/// tenant never had a login of such a user.
pub(crate) async fn lock_subject(tx: &mut TenantTx, user_id: UserId) -> Result<bool, Error> {
    let locked = sqlx::query_scalar!(
        "-- standing.lock_subject
        select user_id from session.subjects where user_id = $1 for update",
        user_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(locked.is_some())
}

/// Whether the tenant has ever had a login of this user: enough to tell a user of ours from one that does not exist.
pub(crate) async fn knows_subject(tx: &mut TenantTx, user_id: UserId) -> Result<bool, Error> {
    let known = sqlx::query_scalar!(
        r#"-- standing.knows_subject
        select exists (select from session.subjects where user_id = $1) as "known!""#,
        user_id.0
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(known)
}
