//! Sessions. Only the digest of a token is ever written.

use chrono::{DateTime, Utc};
use contract::session::{Session, SessionMethod};
use database::{Database, Error, TenantTx};
use hashing::TokenDigest;
use tenancy::{SessionId, TenantId, UserId};
use uuid::Uuid;

use crate::domain::session::{Expiry, NewSession};

/// Writes a new session.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    session_id: SessionId,
    digest: TokenDigest,
    session: &NewSession,
    expiry: &Expiry,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- session.insert
        insert into session.sessions (
            session_id, tenant_id, user_id, digest, method, credential_version, session_version, ip, user_agent,
            created_at, last_seen_at, idle_seconds, idle_expires_at, expires_at
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12, $13)",
        session_id.0,
        session.tenant_id.as_str(),
        session.standing.user_id.0,
        digest.as_bytes(),
        method_as_str(session.method),
        session.standing.credential_version,
        session.standing.session_version,
        session.ip.map(|ip| ip.to_string()),
        session.user_agent,
        now,
        i32::try_from(expiry.idle.num_seconds()).unwrap_or(i32::MAX),
        expiry.idle_expires_at,
        expiry.expires_at,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// The session with this token, live or over: its id, tenant and user.
pub(crate) async fn find_by_digest(
    database: &Database,
    digest: TokenDigest,
) -> Result<Option<(SessionId, TenantId, UserId)>, Error> {
    let found = sqlx::query!(
        r#"-- session.find_by_digest
        select
            session_id as "session_id!: SessionId", tenant_id as "tenant_id!: TenantId", user_id as "user_id!: UserId"
        from session.find_session($1)"#,
        digest.as_bytes()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(found.map(|row| (row.session_id, row.tenant_id, row.user_id)))
}

/// A session that is revoked.
pub(crate) struct RevokedSession {
    /// The digest of its token, in hex.
    pub(crate) digest: String,
    pub(crate) user_id: UserId,
    /// Whether it was not before.
    pub(crate) newly: bool,
}

/// Revokes a session by its listed id, for its owner, or for anybody of the tenant without one. It is returned, if it
/// is there.
pub(crate) async fn mark_revoked(
    tx: &mut TenantTx,
    session_id: SessionId,
    owner: Option<UserId>,
    now: DateTime<Utc>,
) -> Result<Option<RevokedSession>, Error> {
    let revoked = sqlx::query_as!(
        RevokedSession,
        r#"-- session.mark_revoked
        update session.sessions
        set revoked_at = coalesce(revoked_at, $3)
        where session_id = $1 and ($2::uuid is null or user_id = $2)
        returning encode(digest, 'hex') as "digest!", user_id as "user_id: UserId", (revoked_at = $3) as "newly!""#,
        session_id.0,
        owner.map(|id| id.0),
        now
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(revoked)
}

/// Revokes all sessions of a user, but the one that stays, if any.
pub(crate) async fn mark_all_revoked(
    tx: &mut TenantTx,
    user_id: UserId,
    stays: Option<SessionId>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- session.mark_all_revoked
        update session.sessions
        set revoked_at = $3
        where user_id = $1 and revoked_at is null and ($2::uuid is null or session_id <> $2)",
        user_id.0,
        stays.map(|id| id.0),
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Revokes a user's live sessions beyond the most recently used ones. Returns the digests of their tokens in hex.
pub(crate) async fn mark_surplus_revoked(
    tx: &mut TenantTx,
    user_id: UserId,
    most: i64,
    now: DateTime<Utc>,
) -> Result<Vec<String>, Error> {
    let digests = sqlx::query_scalar!(
        r#"-- session.mark_surplus_revoked
        update session.sessions
        set revoked_at = $3
        where session_id in (
            select session_id from session.sessions
            where user_id = $1 and revoked_at is null and expires_at > $3 and idle_expires_at > $3
            order by last_seen_at desc, session_id desc
            offset $2
        )
        returning encode(digest, 'hex') as "digest!""#,
        user_id.0,
        most,
        now
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(digests)
}

/// Deletes sessions that were over before a time; tells how many, at most `limit`.
pub(crate) async fn delete_before(
    database: &Database,
    before: DateTime<Utc>,
    limit: i32,
) -> Result<i64, Error> {
    let deleted =
        sqlx::query_scalar!("select session.purge($1, $2)", before, limit).fetch_one(database.pool()).await?;
    Ok(deleted.unwrap_or(0))
}

/// Tells the audit of sessions that ran out, at most as many as there are ids for outbox rows; tells how many.
pub(crate) async fn tell_expired(
    database: &Database,
    outbox_ids: &[Uuid],
    now: DateTime<Utc>,
) -> Result<usize, Error> {
    let told = sqlx::query_scalar!("select session.tell_expired($1, $2)", now, outbox_ids)
        .fetch_one(database.pool())
        .await?;
    Ok(told.and_then(|told| told.try_into().ok()).unwrap_or(0))
}

/// How many sessions of all tenants live.
///
/// # Errors
/// The database is not available.
pub(crate) async fn count_live(database: &Database, now: DateTime<Utc>) -> Result<i64, Error> {
    let live = sqlx::query_scalar!("select session.count_live($1)", now).fetch_one(database.pool()).await?;
    Ok(live.unwrap_or(0))
}

/// A user's live sessions after a given one, oldest first.
pub(crate) async fn list(
    tx: &mut TenantTx,
    user_id: UserId,
    after: Option<SessionId>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<Vec<Session>, Error> {
    let rows = sqlx::query!(
        "-- session.list
        select
            session_id, created_at, last_seen_at, expires_at, idle_expires_at, method, ip, user_agent
        from session.sessions
        join session.subjects using (user_id)
        join session.tenants on tenants.tenant_id = sessions.tenant_id
        where sessions.user_id = $1
            and ($2::uuid is null or session_id > $2)
            and revoked_at is null
            and expires_at > $4
            and idle_expires_at > $4
            and subjects.status = 'active'
            and tenants.session_version = sessions.session_version
            and (
                subjects.credential_version = sessions.credential_version
                or subjects.kept_session_id = sessions.session_id
            )
        order by session_id
        limit $3",
        user_id.0,
        after.map(|id| id.0),
        limit,
        now
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Session {
            id: SessionId(row.session_id),
            created_at: row.created_at,
            last_seen_at: row.last_seen_at,
            expires_at: row.expires_at,
            idle_expires_at: row.idle_expires_at,
            method: method_from_str(&row.method),
            ip: row.ip,
            user_agent: row.user_agent,
            current: false,
        })
        .collect())
}

/// As the column holds it.
pub(crate) const fn method_as_str(method: SessionMethod) -> &'static str {
    match method {
        SessionMethod::Password => "password",
        SessionMethod::Device => "device",
    }
}

/// A constraint of the table keeps anything else out.
pub(crate) fn method_from_str(text: &str) -> SessionMethod {
    if text == "device" { SessionMethod::Device } else { SessionMethod::Password }
}
