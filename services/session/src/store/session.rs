//! Sessions. Only the digest of a token is stored.

use chrono::{DateTime, TimeDelta, Utc};
use contract::internal::{SubjectRecord, TenantRecord};
use contract::session::SessionMethod;
use database::{Database, Error, TenantCall, TenantTx};
use hashing::TokenDigest;
use serde_json::Value;
use sqlx::PgExecutor;
use tenancy::{OutboxId, SessionId, TenantId, UserId};

use super::parse_digest;
use crate::domain::account_status::AccountVersions;
use crate::domain::session::{NewSession, Session, SessionLifecycle};

/// A session with the digest of its token.
pub(crate) struct StoredSession {
    pub(crate) session: Session,
    /// The digest of the token.
    pub(crate) digest: TokenDigest,
}

/// Inserts a session, and revokes the least recently used active ones of its user, so that at most `max` remain. Returns the digests of
/// their tokens.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    new: &NewSession,
    session: &Session,
    digest: TokenDigest,
    max: i64,
) -> Result<Vec<TokenDigest>, Error> {
    let (tenant_id, none) = (tx.tenant_id().clone(), || Value::Array(Vec::new()));
    let messages = (none(), none());
    let revoked = insert_with(tx.connection(), &tenant_id, new, session, digest, max, None, messages).await?;
    Ok(revoked.unwrap_or_default())
}

/// Like [`insert`], in one statement with the messages of the call, and with those of `surplus` if sessions are revoked. Returns `None`
/// without a change if the stored account status has other versions.
pub(crate) async fn insert_if_stored(
    call: TenantCall,
    surplus: TenantCall,
    new: &NewSession,
    session: &Session,
    digest: TokenDigest,
    max: i64,
    versions: (&TenantRecord, &SubjectRecord),
) -> Result<Option<Vec<TokenDigest>>, Error> {
    let (tenant_id, surplus) = (call.tenant_id().clone(), surplus.into_messages()?);
    let versions = Some((versions.0.version, versions.1.version));
    call.run(async |pool, messages| {
        insert_with(pool, &tenant_id, new, session, digest, max, versions, (messages, surplus)).await
    })
    .await
}

#[expect(clippy::too_many_arguments, reason = "the arguments of one statement")]
async fn insert_with(
    executor: impl PgExecutor<'_>,
    tenant_id: &TenantId,
    new: &NewSession,
    session: &Session,
    digest: TokenDigest,
    max: i64,
    versions: Option<(i64, i64)>,
    messages: (Value, Value),
) -> Result<Option<Vec<TokenDigest>>, Error> {
    let Session { id, created_under, lifecycle } = session;
    let (tenant_version, subject_version) = versions.unzip();
    let revoked = sqlx::query_scalar!(
        "-- session.insert
        select session.insert_session(
            row($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)::session.new_session,
            $15, $16, $17, $18, $19
        )",
        id.0,
        tenant_id.as_str(),
        created_under.user_id.0,
        digest.as_bytes(),
        new.method.as_str(),
        created_under.credential_version,
        created_under.session_version,
        new.ip.map(|ip| ip.to_string()),
        new.user_agent,
        new.client_name,
        lifecycle.last_seen_at,
        i32::try_from(lifecycle.idle_timeout.num_seconds()).unwrap_or(i32::MAX),
        lifecycle.idle_expires_at,
        lifecycle.expires_at,
        max,
        tenant_version,
        subject_version,
        messages.0,
        messages.1,
    )
    .fetch_one(executor)
    .await?;
    let digest = |bytes: Vec<u8>| match bytes.try_into() {
        Ok(bytes) => Ok(TokenDigest::from_bytes(bytes)),
        Err(_) => Err(Error::corrupt("sessions.digest", "not a SHA-256 digest")),
    };
    revoked.map(|digests| digests.into_iter().map(digest).collect()).transpose()
}

/// Returns the id, tenant and user of the session with this token, in any state.
pub(crate) async fn find_by_digest(
    database: &Database,
    digest: TokenDigest,
) -> Result<Option<(SessionId, TenantId, UserId)>, Error> {
    let row = sqlx::query!(
        r#"-- session.find_by_digest
        select
            session_id as "session_id!: SessionId", tenant_id as "tenant_id!: TenantId", user_id as "user_id!: UserId"
        from session.find_session_by_digest($1)"#,
        digest.as_bytes()
    )
    .fetch_optional(database.pool())
    .await?;
    Ok(row.map(|row| (row.session_id, row.tenant_id, row.user_id)))
}

/// Returns the session with this id, in any state, and locks its row.
pub(crate) async fn find_for_update(
    tx: &mut TenantTx,
    session_id: SessionId,
) -> Result<Option<StoredSession>, Error> {
    let row = sqlx::query!(
        r#"-- session.find_for_update
        select
            user_id as "user_id: UserId",
            credential_version,
            session_version,
            encode(digest, 'hex') as "digest!",
            last_seen_at,
            idle_seconds,
            idle_expires_at,
            expires_at,
            revoked_at
        from session.sessions
        where session_id = $1
        for no key update"#,
        session_id.0
    )
    .fetch_optional(tx.connection())
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(StoredSession {
        session: Session {
            id: session_id,
            created_under: AccountVersions {
                user_id: row.user_id,
                credential_version: row.credential_version,
                session_version: row.session_version,
            },
            lifecycle: SessionLifecycle {
                last_seen_at: row.last_seen_at,
                idle_timeout: TimeDelta::seconds(row.idle_seconds.into()),
                idle_expires_at: row.idle_expires_at,
                expires_at: row.expires_at,
                revoked_at: row.revoked_at,
            },
        },
        digest: parse_digest(&row.digest)?,
    }))
}

/// Saves the time of revocation.
pub(crate) async fn save_revocation(
    tx: &mut TenantTx,
    session_id: SessionId,
    lifecycle: &SessionLifecycle,
) -> Result<(), Error> {
    sqlx::query!(
        "-- session.save_revocation
        update session.sessions
        set revoked_at = $2
        where session_id = $1",
        session_id.0,
        lifecycle.revoked_at
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Revokes all sessions of a user except `kept`. Returns their number.
pub(crate) async fn mark_all_revoked(
    tx: &mut TenantTx,
    user_id: UserId,
    kept: Option<SessionId>,
) -> Result<u64, Error> {
    let revoked = sqlx::query!(
        "-- session.mark_all_revoked
        update session.sessions
        set revoked_at = $3
        where user_id = $1 and revoked_at is null and ($2::uuid is null or session_id <> $2)",
        user_id.0,
        kept.map(|id| id.0),
        tx.now()
    )
    .execute(tx.connection())
    .await?;
    Ok(revoked.rows_affected())
}

/// Revokes sessions of the tenant that were created before a time, at most `limit`. Returns them with their users and the digests of
/// their tokens.
pub(crate) async fn mark_revoked_before(
    tx: &mut TenantTx,
    time: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(SessionId, UserId, TokenDigest)>, Error> {
    let rows = sqlx::query!(
        r#"-- session.mark_revoked_before
        update session.sessions
        set revoked_at = $2
        where session_id in (
            select session_id from session.sessions
            where created_at < $1 and revoked_at is null and expires_at > $2
                -- A use before the idle timeout can be saved after it.
                and idle_expires_at > $2 - interval '1 minute'
            limit $3
        )
        returning
            session_id as "session_id: SessionId", user_id as "user_id: UserId", encode(digest, 'hex') as "digest!""#,
        time,
        tx.now(),
        limit
    )
    .fetch_all(tx.connection())
    .await?;
    rows.into_iter().map(|row| Ok((row.session_id, row.user_id, parse_digest(&row.digest)?))).collect()
}

/// Revokes all sessions of a user and erases the personal data. The purge deletes them a day later.
pub(crate) async fn erase_of_user(tx: &mut TenantTx, user_id: UserId) -> Result<(), Error> {
    sqlx::query!(
        "-- session.erase_of_user
        update session.sessions
        set revoked_at = coalesce(revoked_at, $2), ip = null, user_agent = null, client_name = null
        where user_id = $1",
        user_id.0,
        tx.now()
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// A session as the API shows it.
struct ListedRow {
    session_id: SessionId,
    created_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    idle_expires_at: DateTime<Utc>,
    method: String,
    ip: Option<String>,
    user_agent: Option<String>,
    client_name: Option<String>,
}

impl TryFrom<ListedRow> for contract::session::Session {
    type Error = Error;

    fn try_from(row: ListedRow) -> Result<Self, Error> {
        Ok(Self {
            id: row.session_id,
            created_at: row.created_at,
            last_seen_at: row.last_seen_at,
            expires_at: row.expires_at,
            idle_expires_at: row.idle_expires_at,
            method: parse_method(&row.method)?,
            ip: row.ip,
            user_agent: row.user_agent,
            client_name: row.client_name,
            current: false,
        })
    }
}

/// Returns the stored sessions of a user in any state, oldest first.
pub(crate) async fn list_stored(
    tx: &mut TenantTx,
    user_id: UserId,
    limit: i64,
) -> Result<Vec<contract::session::Session>, Error> {
    let rows = sqlx::query_as!(
        ListedRow,
        r#"-- session.list_stored
        select
            session_id as "session_id: SessionId",
            created_at,
            last_seen_at,
            expires_at,
            idle_expires_at,
            method,
            ip,
            user_agent,
            client_name
        from session.sessions
        where user_id = $1
        order by session_id
        limit $2"#,
        user_id.0,
        limit
    )
    .fetch_all(tx.connection())
    .await?;
    rows.into_iter().map(TryFrom::try_from).collect()
}

/// Returns a user's active sessions after a given one, oldest first.
pub(crate) async fn list(
    tx: &mut TenantTx,
    user_id: UserId,
    after: Option<SessionId>,
    limit: i64,
) -> Result<Vec<contract::session::Session>, Error> {
    let rows = sqlx::query_as!(
        ListedRow,
        r#"-- session.list
        select
            session_id as "session_id: SessionId",
            created_at,
            last_seen_at,
            expires_at,
            idle_expires_at,
            method,
            ip,
            user_agent,
            client_name
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
        limit $3"#,
        user_id.0,
        after.map(|id| id.0),
        limit,
        tx.now()
    )
    .fetch_all(tx.connection())
    .await?;
    rows.into_iter().map(TryFrom::try_from).collect()
}

/// Deletes at most `limit` sessions of all tenants that became inactive before a time. Returns the number deleted.
pub(crate) async fn delete_before(
    database: &Database,
    before: DateTime<Utc>,
    limit: i32,
) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- session.delete_before
        select session.purge_sessions($1, $2) as "deleted!""#,
        before,
        limit
    )
    .fetch_one(database.pool())
    .await?;
    Ok(deleted)
}

/// Writes audit events for sessions of all tenants that have expired, at most one per outbox id. Returns the number written.
pub(crate) async fn audit_expired(
    database: &Database,
    outbox_ids: &[OutboxId],
    now: DateTime<Utc>,
) -> Result<i64, Error> {
    let audited = sqlx::query_scalar!(
        r#"-- session.audit_expired
        select session.audit_expired_sessions($1, $2) as "audited!""#,
        now,
        outbox_ids as &[OutboxId]
    )
    .fetch_one(database.pool())
    .await?;
    Ok(audited)
}

/// Returns the number of active sessions of all tenants.
pub(crate) async fn count_active(database: &Database, now: DateTime<Utc>) -> Result<i64, Error> {
    let active = sqlx::query_scalar!(
        r#"-- session.count_active
        select session.count_active_sessions($1) as "active!""#,
        now
    )
    .fetch_one(database.pool())
    .await?;
    Ok(active)
}

/// Parses the stored form of a login method.
pub(super) fn parse_method(text: &str) -> Result<SessionMethod, Error> {
    text.parse::<SessionMethod>().map_err(|error| Error::corrupt("sessions.method", error))
}
