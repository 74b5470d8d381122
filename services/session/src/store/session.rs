//! Sessions. Only the digest of a token is stored.

use chrono::{DateTime, TimeDelta, Utc};
use contract::internal::{SubjectRecord, TenantRecord};
use contract::session::{AuthMethod, Session as ListedSession, SessionMethod};
use database::{Database, Error, TenantCall, TenantTx};
use hashing::TokenDigest;
use serde_json::Value;
use sqlx::PgExecutor;
use tenancy::{SessionId, TenantId, UserId};

use crate::domain::account_status::AccountVersions;
use crate::domain::session::{
    EXPIRY_DELAY, KEPT_ENDED_SESSIONS, MAX_SESSIONS, MAX_STORED_SESSIONS, NewSession, Session,
    SessionLifecycle, TOUCH_INTERVAL,
};

/// A session with the digest of its token.
pub(crate) struct StoredSession {
    pub(crate) session: Session,
    /// The digest of the token.
    pub(crate) digest: TokenDigest,
}

/// Inserts a session.
pub(crate) async fn insert(tx: &mut TenantTx, new: &NewSession, stored: &StoredSession) -> Result<(), Error> {
    let (tenant_id, messages) = (tx.tenant_id().clone(), Value::Array(Vec::new()));
    call_insert(tx.connection(), &tenant_id, new, stored, None, messages).await?;
    Ok(())
}

/// Inserts a session in one statement with the messages of the call. Returns `None` without a change if these are not the
/// stored records, or the user has [`MAX_SESSIONS`] active or [`MAX_STORED_SESSIONS`] stored ones.
pub(crate) async fn insert_if_stored(
    call: TenantCall,
    records: (&TenantRecord, &SubjectRecord),
    new: &NewSession,
    stored: &StoredSession,
) -> Result<Option<()>, Error> {
    let tenant_id = call.tenant_id().clone();
    call.run(async |pool, messages| call_insert(pool, &tenant_id, new, stored, Some(records), messages).await)
        .await
}

async fn call_insert(
    executor: impl PgExecutor<'_>,
    tenant_id: &TenantId,
    new: &NewSession,
    stored: &StoredSession,
    records: Option<(&TenantRecord, &SubjectRecord)>,
    messages: Value,
) -> Result<Option<()>, Error> {
    let StoredSession { session: Session { id, created_under, lifecycle }, digest } = stored;
    let amr: Vec<String> = new.amr.iter().map(ToString::to_string).collect();
    let inserted = sqlx::query_scalar!(
        r#"-- session.insert
        select session.insert_session(
            row($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)::session.new_session, $16, $17, $18, $19, $20
        ) as "inserted!""#,
        id.0,
        tenant_id.as_str(),
        created_under.user_id.0,
        digest.as_bytes(),
        new.method.as_str(),
        &amr,
        created_under.credential_version,
        created_under.session_version,
        new.ip.map(|ip| ip.to_string()),
        new.user_agent,
        new.client_name,
        lifecycle.last_seen_at,
        i32::try_from(lifecycle.idle_timeout.num_seconds()).unwrap_or(i32::MAX),
        lifecycle.idle_expires_at,
        lifecycle.expires_at,
        records.map(|(tenant, _)| tenant.version),
        records.map(|(_, subject)| subject.version),
        MAX_SESSIONS,
        MAX_STORED_SESSIONS,
        messages,
    )
    .fetch_one(executor)
    .await?;
    Ok(inserted.then_some(()))
}

/// Revokes the least recently used active sessions of a user, so that `kept` remain. Returns the digests of their tokens. Uses are saved
/// once a minute, so a session with a saved use can have been used up to a minute later.
pub(crate) async fn mark_surplus_revoked(
    tx: &mut TenantTx,
    user_id: UserId,
    kept: i64,
) -> Result<Vec<TokenDigest>, Error> {
    let digests = sqlx::query_scalar!(
        r#"-- session.mark_surplus_revoked
        update session.sessions
        set inactive_since = $3
        where inactive_since is null and session_id = any(array(
            select active.session_id
            from session.active_sessions($3) as active
            where active.user_id = $1
            order by
                active.last_seen_at + case when active.last_seen_at > active.created_at then $4 else interval '0' end desc,
                active.session_id desc
            offset $2
        ))
        returning digest as "digest: TokenDigest""#,
        user_id.0,
        kept,
        tx.now(),
        TOUCH_INTERVAL as _
    );
    Ok(digests.fetch_all(tx.connection()).await?)
}

/// Deletes the sessions of a user that are not active, except the [`KEPT_ENDED_SESSIONS`] that ended or were used last. Those that have
/// just expired remain until their audit event is written.
pub(crate) async fn delete_ended(tx: &mut TenantTx, user_id: UserId) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- session.delete_ended
        delete from session.sessions
        where session_id = any(array(
            select session_id
            from session.sessions
            where user_id = $1 and (valid_until > $3 or valid_until is null) and session_id not in (
                select active.session_id from session.active_sessions($3) as active where active.user_id = $1
            )
            order by coalesce(inactive_since, last_seen_at) desc, session_id desc
            offset $2
        ))",
        user_id.0,
        KEPT_ENDED_SESSIONS,
        tx.now()
    );
    tx.execute(statement).await.map(drop)
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

/// The columns of a [`StoredSession`].
struct SessionRow {
    session_id: SessionId,
    user_id: UserId,
    credential_version: i64,
    session_version: i64,
    digest: TokenDigest,
    last_seen_at: DateTime<Utc>,
    idle_seconds: i32,
    idle_expires_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    inactive_since: Option<DateTime<Utc>>,
}

impl From<SessionRow> for StoredSession {
    fn from(row: SessionRow) -> Self {
        let session = Session {
            id: row.session_id,
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
                inactive_since: row.inactive_since,
            },
        };
        Self { session, digest: row.digest }
    }
}

/// A statement that returns sessions: its text before and after the columns, and its parameters.
macro_rules! sessions {
    ($start:literal, $end:literal, $($parameter:expr),+ $(,)?) => {
        sqlx::query_as!(
            SessionRow,
            $start + r#"
                session_id as "session_id: SessionId", user_id as "user_id: UserId", credential_version, session_version,
                digest as "digest: TokenDigest", last_seen_at, idle_seconds, idle_expires_at, expires_at, inactive_since
            "# + $end,
            $($parameter),+
        )
    };
}

/// Returns the session with this id, in any state, and locks its row.
pub(crate) async fn find_for_update(
    tx: &mut TenantTx,
    session_id: SessionId,
) -> Result<Option<StoredSession>, Error> {
    let row = sessions!(
        "-- session.find_for_update
        select",
        "from session.sessions
        where session_id = $1
        for no key update",
        session_id.0
    );
    Ok(row.fetch_optional(tx.connection()).await?.map(StoredSession::from))
}

/// Saves the time of revocation.
pub(crate) async fn save_revocation(
    tx: &mut TenantTx,
    session_id: SessionId,
    lifecycle: &SessionLifecycle,
) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- session.save_revocation
        update session.sessions
        set inactive_since = $2
        where session_id = $1",
        session_id.0,
        lifecycle.inactive_since
    );
    tx.execute(statement).await.map(drop)
}

/// Revokes all sessions of a user except `kept`. Returns their number.
pub(crate) async fn mark_all_revoked(
    tx: &mut TenantTx,
    user_id: UserId,
    kept: Option<SessionId>,
) -> Result<u64, Error> {
    let statement = sqlx::query!(
        "-- session.mark_all_revoked
        update session.sessions
        set inactive_since = least(valid_until, $3)
        where user_id = $1 and inactive_since is null and ($2::uuid is null or session_id <> $2)",
        user_id.0,
        kept.map(|id| id.0),
        tx.now()
    );
    tx.execute(statement).await
}

/// Revokes sessions of the tenant that were created before a time and are not due to be recorded as expired, at most `limit`. Returns them.
pub(crate) async fn mark_revoked_before(
    tx: &mut TenantTx,
    time: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<StoredSession>, Error> {
    let rows = sessions!(
        "-- session.mark_revoked_before
        update session.sessions
        set inactive_since = least(valid_until, $2)
        where session_id = any(array(
            select session_id
            from session.sessions
            where created_at < $1 and valid_until > $3
            limit $4
        ))
        returning",
        "",
        time,
        tx.now(),
        tx.now() - EXPIRY_DELAY,
        limit
    );
    Ok(rows.fetch_all(tx.connection()).await?.into_iter().map(StoredSession::from).collect())
}

/// Lists sessions of all tenants that expired by a time, by tenant, at most `limit`.
pub(crate) async fn list_expired(
    database: &Database,
    by: DateTime<Utc>,
    limit: i32,
) -> Result<Vec<(TenantId, Vec<SessionId>)>, Error> {
    let rows = sqlx::query!(
        r#"-- session.list_expired
        select tenant_id as "tenant_id!: TenantId", session_ids as "session_ids!: Vec<SessionId>"
        from session.list_expired_sessions($1, $2)"#,
        by,
        limit
    )
    .fetch_all(database.pool())
    .await?;
    Ok(rows.into_iter().map(|row| (row.tenant_id, row.session_ids)).collect())
}

/// Records that those of these sessions have expired that expired by a time, except rows that another transaction has locked. Returns
/// them.
pub(crate) async fn mark_expired(
    tx: &mut TenantTx,
    session_ids: &[SessionId],
    by: DateTime<Utc>,
) -> Result<Vec<StoredSession>, Error> {
    let rows = sessions!(
        "-- session.mark_expired
        update session.sessions
        set inactive_since = valid_until
        where session_id = any(array(
            select session_id
            from session.sessions
            where session_id = any($1) and valid_until <= $2
            for no key update skip locked
        ))
        returning",
        "",
        session_ids as &[SessionId],
        by
    );
    Ok(rows.fetch_all(tx.connection()).await?.into_iter().map(StoredSession::from).collect())
}

/// Erases the personal data of the sessions of a user.
pub(crate) async fn erase_user(tx: &mut TenantTx, user_id: UserId) -> Result<(), Error> {
    let statement = sqlx::query!(
        "-- session.erase_user
        update session.sessions
        set ip = null, user_agent = null, client_name = null
        where user_id = $1",
        user_id.0
    );
    tx.execute(statement).await.map(drop)
}

/// Selects sessions as the API shows them: the span name of the statement, its end, and the parameters.
macro_rules! listed {
    ($name:literal, $end:literal, $($parameter:expr),+ $(,)?) => {
        sqlx::query_as!(
            ListedSession,
            "-- " + $name + r#"
            select
                session_id as "id!: SessionId", created_at as "created_at!", last_seen_at as "last_seen_at!",
                expires_at as "expires_at!", idle_expires_at as "idle_expires_at!", method as "method!: SessionMethod",
                amr as "amr!: Vec<AuthMethod>", ip, user_agent, client_name, false as "current!"
            "# + $end,
            $($parameter),+
        )
    };
}

/// Returns the stored sessions of a user in any state, oldest first.
pub(crate) async fn list_stored(
    tx: &mut TenantTx,
    user_id: UserId,
    limit: i64,
) -> Result<Vec<ListedSession>, Error> {
    let sessions = listed!(
        "session.list_stored",
        "from session.sessions
        where user_id = $1
        order by session_id
        limit $2",
        user_id.0,
        limit
    );
    Ok(sessions.fetch_all(tx.connection()).await?)
}

/// Returns a user's active sessions after a given one, oldest first.
pub(crate) async fn list(
    tx: &mut TenantTx,
    user_id: UserId,
    after: Option<SessionId>,
    limit: i64,
) -> Result<Vec<ListedSession>, Error> {
    let sessions = listed!(
        "session.list",
        "from session.active_sessions($4)
        where user_id = $1 and ($2::uuid is null or session_id > $2)
        order by session_id
        limit $3",
        user_id.0,
        after.map(|id| id.0),
        limit,
        tx.now()
    );
    Ok(sessions.fetch_all(tx.connection()).await?)
}

/// Returns the number of sessions of all tenants that are neither revoked nor expired.
pub(crate) async fn count_valid(database: &Database, now: DateTime<Utc>) -> Result<i64, Error> {
    let valid = sqlx::query_scalar!(
        r#"-- session.count_valid
        select session.count_valid_sessions($1) as "valid!""#,
        now
    )
    .fetch_one(database.pool())
    .await?;
    Ok(valid)
}
