//! Password resets.

use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{OutboxId, ResetId, TenantId, UserId};

use crate::domain::email::EmailKey;
use crate::domain::reset::{Reset, ResetState};

/// A reset with its account.
pub(crate) struct ResetOfAccount {
    pub(crate) reset: Reset,
    pub(crate) email: EmailKey,
    /// Whether user and tenant are active.
    pub(crate) is_active: bool,
}

/// Finds the reset of a token. The token determines the tenant.
pub(crate) async fn find_by_digest(
    database: &Database,
    digest: TokenDigest,
) -> Result<Option<(ResetId, TenantId)>, Error> {
    let row = sqlx::query!(
        r#"-- reset.find_by_digest
        select reset_id as "reset_id!: ResetId", tenant_id as "tenant_id!: TenantId" from identity.find_reset($1)"#,
        digest.as_bytes()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| (row.reset_id, row.tenant_id)))
}

/// Finds a reset with its account and locks first the user, then the reset until the transaction ends. Every transaction locks
/// them in this order, so that a new reset, its confirmation and a password change cannot deadlock.
pub(crate) async fn find_for_update(
    tx: &mut TenantTx,
    reset_id: ResetId,
) -> Result<Option<ResetOfAccount>, Error> {
    let row = sqlx::query!(
        r#"-- reset.find_for_update
        select
            resets.reset_id as "reset_id: ResetId", resets.mail_id as "mail_id: OutboxId", resets.user_id as "user_id: UserId",
            resets.status, resets.digest as "digest: TokenDigest", resets.expires_at, resets.created_at, resets.settled_at, users.email_key,
            users.status = 'active' and tenants.status = 'active' as "is_active!"
        from identity.resets
        join identity.users using (user_id)
        join identity.tenants on tenants.tenant_id = resets.tenant_id
        where resets.reset_id = $1
        for no key update of users, resets"#,
        reset_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let state = match (row.status.as_str(), row.settled_at) {
        ("pending", None) => ResetState::Pending,
        ("used", Some(at)) => ResetState::Used { at },
        ("replaced", Some(at)) => ResetState::Replaced { at },
        (status, _) => return Err(Error::corrupt("resets.status", format!("unexpected status {status}"))),
    };
    let reset = Reset {
        id: row.reset_id,
        mail_id: row.mail_id,
        user_id: row.user_id,
        created_at: row.created_at,
        digest: row.digest,
        expires_at: row.expires_at,
        state,
    };
    Ok(Some(ResetOfAccount { reset, email: EmailKey::from_stored(row.email_key), is_active: row.is_active }))
}

/// The resets of one outbox message, and the active ones of its user.
pub(crate) struct KnownResets {
    /// An earlier attempt to send the message created a reset.
    pub(crate) is_repeated: bool,
    /// One of them was used or replaced.
    pub(crate) is_settled: bool,
    /// The user has a reset with a token that can be used.
    pub(crate) is_active: bool,
}

/// Finds the resets of an outbox message.
pub(crate) async fn find_known(
    tx: &mut TenantTx,
    user_id: UserId,
    mail_id: OutboxId,
) -> Result<KnownResets, Error> {
    let row = sqlx::query_as!(
        KnownResets,
        r#"-- reset.find_known
        select
            coalesce(bool_or(mail_id = $2), false) as "is_repeated!",
            coalesce(bool_or(mail_id = $2 and status <> 'pending'), false) as "is_settled!",
            coalesce(bool_or(status = 'pending' and expires_at > $3), false) as "is_active!"
        from identity.resets
        where user_id = $1"#,
        user_id.0,
        mail_id.0,
        tx.now()
    );
    Ok(row.fetch_one(tx.connection()).await?)
}

/// Marks the pending resets of a user as replaced, or only those that are older than the given one.
pub(crate) async fn mark_replaced(
    tx: &mut TenantTx,
    user_id: UserId,
    by: Option<&Reset>,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- reset.mark_replaced
        update identity.resets
        set status = 'replaced', settled_at = $3
        where user_id = $1 and status = 'pending' and ($2::uuid is null or (created_at, reset_id) < ($4, $2))",
        user_id.0,
        by.map(|reset| reset.id.0),
        tx.now(),
        by.map(|reset| reset.created_at)
    );
    tx.execute(statement).await.map(drop)
}

/// Inserts a pending reset.
pub(crate) async fn insert(tx: &mut TenantTx, reset: &Reset) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- reset.insert
        insert into identity.resets (reset_id, mail_id, tenant_id, user_id, status, digest, expires_at, created_at)
        values ($1, $2, $3, $4, 'pending', $5, $6, $7)",
        reset.id.0,
        reset.mail_id.0,
        tx.tenant_id().as_str(),
        reset.user_id.0,
        reset.digest.as_bytes(),
        reset.expires_at,
        reset.created_at
    );
    tx.execute(statement).await.map(drop)
}

/// Marks a pending reset as used. Returns whether it was still pending: of several requests at once, one wins.
pub(crate) async fn mark_used(tx: &mut TenantTx, used: &Reset) -> Result<bool, Error> {
    let statement = sqlx::query!(
        "-- reset.mark_used
        update identity.resets
        set status = 'used', settled_at = $2
        where reset_id = $1 and status = 'pending'",
        used.id.0,
        tx.now()
    );
    Ok(tx.execute(statement).await? == 1)
}
