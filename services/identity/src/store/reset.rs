//! Password resets. Only the digest of a token is ever written.

use chrono::{DateTime, Utc};
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{TenantId, UserId};
use uuid::Uuid;

use crate::domain::email::EmailKey;

/// The state of the reset that this request has made, if it has: then its row is worked off once more.
pub(crate) async fn status(tx: &mut TenantTx, reset_id: Uuid) -> Result<Option<String>, Error> {
    let status = sqlx::query_scalar!(
        "-- reset.status
        select status from identity.resets where reset_id = $1",
        reset_id
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(status)
}

/// Whether a user holds a token that is good now.
pub(crate) async fn is_live(tx: &mut TenantTx, user_id: UserId, now: DateTime<Utc>) -> Result<bool, Error> {
    let live = sqlx::query_scalar!(
        r#"-- reset.is_live
        select exists (
            select from identity.resets where user_id = $1 and status = 'pending' and expires_at > $2
        ) as "live!""#,
        user_id.0,
        now
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(live)
}

/// How many resets a user was sent since a time.
pub(crate) async fn count_since(
    tx: &mut TenantTx,
    user_id: UserId,
    since: DateTime<Utc>,
) -> Result<i64, Error> {
    let count = sqlx::query_scalar!(
        r#"-- reset.count_since
        select count(*) as "count!" from identity.resets where user_id = $1 and created_at > $2"#,
        user_id.0,
        since
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(count)
}

/// The pending resets of a user are over: a newer one takes their place, or nothing does.
pub(crate) async fn mark_replaced(
    tx: &mut TenantTx,
    user_id: UserId,
    by: Option<Uuid>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- reset.mark_replaced
        update identity.resets
        set status = 'replaced', settled_at = $3
        where user_id = $1 and status = 'pending' and ($2::uuid is null or reset_id <> $2)",
        user_id.0,
        by,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Makes a reset, or gives the pending one of this request a new token.
pub(crate) async fn insert_or_renew(
    tx: &mut TenantTx,
    reset_id: Uuid,
    tenant_id: &TenantId,
    user_id: UserId,
    digest: TokenDigest,
    expires_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- reset.insert_or_renew
        insert into identity.resets as known (reset_id, tenant_id, user_id, status, digest, expires_at, created_at)
        values ($1, $2, $3, 'pending', $4, $5, $6)
        on conflict (reset_id) do update set digest = excluded.digest, expires_at = excluded.expires_at
        where known.status = 'pending'",
        reset_id,
        tenant_id.as_str(),
        user_id.0,
        digest.as_bytes(),
        expires_at,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// The reset that a token belongs to: the token itself says which tenant that is.
pub(crate) async fn find_by_digest(
    database: &Database,
    digest: TokenDigest,
) -> Result<Option<(Uuid, TenantId)>, Error> {
    let row = sqlx::query!(
        r#"-- reset.find_by_digest
        select reset_id as "reset_id!", tenant_id as "tenant_id!: TenantId" from identity.find_reset($1)"#,
        digest.as_bytes()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| (row.reset_id, row.tenant_id)))
}

/// Whose reset it is, when it can be confirmed now: pending, in its time, of an active user in an active tenant.
pub(crate) async fn find_pending(
    tx: &mut TenantTx,
    reset_id: Uuid,
    now: DateTime<Utc>,
) -> Result<Option<(UserId, EmailKey)>, Error> {
    let row = sqlx::query!(
        "-- reset.find_pending
        select users.user_id, users.email_key
        from identity.resets
        join identity.users using (user_id)
        join identity.tenants on tenants.tenant_id = resets.tenant_id
        where resets.reset_id = $1
            and resets.status = 'pending'
            and resets.expires_at > $2
            and users.status = 'active'
            and tenants.status = 'active'",
        reset_id,
        now
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(row.map(|row| (UserId(row.user_id), EmailKey::from_stored(row.email_key))))
}

/// Spends the token, if nobody else has and the tenant is still active: of several at once, exactly one wins.
pub(crate) async fn mark_used(
    tx: &mut TenantTx,
    reset_id: Uuid,
    digest: TokenDigest,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "-- reset.mark_used
        update identity.resets
        set status = 'used', settled_at = $3
        where reset_id = $1
            and digest = $2
            and status = 'pending'
            and expires_at > $3
            and exists (
                select from identity.tenants
                where tenants.tenant_id = resets.tenant_id and tenants.status = 'active'
            )",
        reset_id,
        digest.as_bytes(),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(done.rows_affected() == 1)
}
