//! Password resets.

use chrono::{DateTime, Utc};
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{ResetId, TenantId, UserId};

use crate::domain::email::EmailKey;
use crate::domain::reset::{Reset, ResetState};

struct Row {
    reset_id: ResetId,
    user_id: UserId,
    status: String,
    digest: Vec<u8>,
    expires_at: DateTime<Utc>,
    created_at: DateTime<Utc>,
    settled_at: Option<DateTime<Utc>>,
}

impl Row {
    fn reset(self) -> Result<Reset, Error> {
        let state = match (self.status.as_str(), self.settled_at) {
            ("pending", None) => ResetState::Pending,
            ("used", Some(at)) => ResetState::Used { at },
            ("replaced", Some(at)) => ResetState::Replaced { at },
            (status, _) => {
                return Err(Error::corrupt("resets.status", format!("unexpected status {status}")));
            }
        };
        Ok(Reset {
            id: self.reset_id,
            user_id: self.user_id,
            created_at: self.created_at,
            digest: super::digest("resets.digest", &self.digest)?,
            expires_at: self.expires_at,
            state,
        })
    }
}

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
            resets.reset_id as "reset_id: ResetId", resets.user_id as "user_id: UserId", resets.status,
            resets.digest, resets.expires_at, resets.created_at, resets.settled_at, users.email_key,
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
    let (email, is_active) = (EmailKey::from_stored(row.email_key), row.is_active);
    let reset = Row {
        reset_id: row.reset_id,
        user_id: row.user_id,
        status: row.status,
        digest: row.digest,
        expires_at: row.expires_at,
        created_at: row.created_at,
        settled_at: row.settled_at,
    };
    Ok(Some(ResetOfAccount { reset: reset.reset()?, email, is_active }))
}

/// Finds the pending reset of a user.
pub(crate) async fn find_pending(tx: &mut TenantTx, user_id: UserId) -> Result<Option<Reset>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"-- reset.find_pending
        select
            reset_id as "reset_id: ResetId", user_id as "user_id: UserId", status, digest, expires_at, created_at,
            settled_at
        from identity.resets
        where user_id = $1 and status = 'pending'"#,
        user_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    row.map(Row::reset).transpose()
}

/// Marks the pending reset of a user as replaced, except the given one.
pub(crate) async fn mark_replaced(
    tx: &mut TenantTx,
    user_id: UserId,
    except: Option<ResetId>,
) -> Result<(), Error> {
    let now = tx.now();
    sqlx::query!(
        "-- reset.mark_replaced
        update identity.resets
        set status = 'replaced', settled_at = $3
        where user_id = $1 and status = 'pending' and ($2::uuid is null or reset_id <> $2)",
        user_id.0,
        except.map(|id| id.0),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Saves a new reset, or a change of a pending one. Returns whether it is new or was still pending: of several requests at
/// once, one wins.
pub(crate) async fn save(tx: &mut TenantTx, reset: &Reset) -> Result<bool, Error> {
    let tenant_id = tx.tenant_id().clone();
    let status = match reset.state {
        ResetState::Pending => "pending",
        ResetState::Used { .. } => "used",
        ResetState::Replaced { .. } => "replaced",
    };
    let done = sqlx::query!(
        "-- reset.save
        insert into identity.resets as known
            (reset_id, tenant_id, user_id, status, digest, expires_at, created_at, settled_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (reset_id) do update
        set status = excluded.status, digest = excluded.digest, expires_at = excluded.expires_at,
            settled_at = excluded.settled_at
        where known.status = 'pending'",
        reset.id.0,
        tenant_id.as_str(),
        reset.user_id.0,
        status,
        reset.digest.as_bytes(),
        reset.expires_at,
        reset.created_at,
        reset.state.settled_at()
    )
    .execute(tx.connection())
    .await?;
    Ok(done.rows_affected() == 1)
}
