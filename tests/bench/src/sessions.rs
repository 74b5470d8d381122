//! Sessions that are inserted directly into the database, and their lookup with a bare connection pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use authn::{Introspection, Introspector, Unavailable};
use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::session::{AuthMethod, SessionMethod};
use hashing::TokenDigest;
use sqlx::Row as _;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tenancy::{SessionId, TenantId, UserId};
use uuid::Uuid;

/// The pool size of session.
const CONNECTIONS: u32 = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const SAVE_TIMEOUT: Duration = Duration::from_mins(1);

/// The database of the measured system. Clones share the pool.
#[derive(Clone)]
pub(crate) struct SessionTable {
    pool: PgPool,
    user_id: UserId,
}

impl SessionTable {
    pub(crate) async fn connect(url: &str, user_id: UserId) -> anyhow::Result<Self> {
        let options = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
        Ok(Self { pool: options.connect(url).await?, user_id })
    }

    /// Inserts sessions of the user with these token digests, which were used just now.
    pub(crate) async fn insert(&self, digests: &[TokenDigest]) -> anyhow::Result<()> {
        self.insert_used(digests, 0).await
    }

    /// Inserts sessions of the user with these token digests, which were last used some minutes ago.
    pub(crate) async fn insert_used(&self, digests: &[TokenDigest], minutes: i32) -> anyhow::Result<()> {
        let digests: Vec<_> = digests.iter().map(TokenDigest::as_bytes).collect();
        sqlx::query(
            "insert into session.sessions (
                session_id, tenant_id, user_id, digest, method, amr, credential_version, session_version, created_at,
                last_seen_at, idle_seconds, idle_expires_at, expires_at
            )
            select
                gen_random_uuid(), tenant_id, user_id, digest, 'password', '{pwd}', credential_version, session_version, now(),
                now() - make_interval(mins => $3), 3600, now() + interval '1 hour', now() + interval '12 hours'
            from session.subjects
            join session.tenants using (tenant_id)
            cross join unnest($1::bytea[]) as created (digest)
            where user_id = $2",
        )
        .bind(digests)
        .bind(self.user_id.0)
        .bind(minutes)
        .execute(&self.pool)
        .await?;
        sqlx::query("vacuum analyze session.sessions").execute(&self.pool).await?;
        Ok(())
    }

    /// Waits until the service has saved that all these sessions were used just now.
    pub(crate) async fn wait_until_used(&self, digests: &[TokenDigest]) -> anyhow::Result<()> {
        let digests: Vec<_> = digests.iter().map(TokenDigest::as_bytes).collect();
        let is_unused = "select exists (
            select from session.sessions where digest = any($1) and last_seen_at < now() - interval '1 minute'
        )";
        let started = Instant::now();
        while sqlx::query_scalar(is_unused).bind(&digests).fetch_one(&self.pool).await? {
            anyhow::ensure!(started.elapsed() < SAVE_TIMEOUT, "the uses of some sessions were not saved");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The size of the table with its indexes.
    pub(crate) async fn bytes(&self) -> anyhow::Result<u64> {
        let size = "select pg_total_relation_size('session.sessions')";
        let bytes: i64 = sqlx::query_scalar(size).fetch_one(&self.pool).await?;
        Ok(bytes.unsigned_abs())
    }
}

#[async_trait::async_trait]
impl Introspector for SessionTable {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let digest_bytes: Vec<_> = digests.iter().map(TokenDigest::as_bytes).collect();
        let rows = sqlx::query("select * from session.find_credentials($1)")
            .bind(digest_bytes)
            .fetch_all(&self.pool)
            .await
            .map_err(Unavailable::because)?;
        let mut results = vec![None; digests.len()];
        for row in rows {
            let position: i64 = row.try_get("position").map_err(Unavailable::because)?;
            let tenant_id: TenantId = row.try_get("tenant_id").map_err(Unavailable::because)?;
            let result = usize::try_from(position - 1).ok().and_then(|index| results.get_mut(index));
            if let Some(result) = result {
                *result = Some(Arc::new(subject(tenant_id, self.user_id)));
            }
        }
        Ok(results)
    }
}

/// Reports each credential as active, and counts the lookups.
pub(crate) struct CountingIntrospector(Arc<AtomicUsize>);

impl CountingIntrospector {
    pub(crate) fn new(lookups: &Arc<AtomicUsize>) -> Self {
        Self(Arc::clone(lookups))
    }
}

#[async_trait::async_trait]
impl Introspector for CountingIntrospector {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        self.0.fetch_add(digests.len(), Ordering::Relaxed);
        let tenant_id: TenantId = "bench".parse().map_err(Unavailable::because)?;
        let user_id = UserId(Uuid::now_v7());
        Ok(digests.iter().map(|_| Some(Arc::new(subject(tenant_id.clone(), user_id)))).collect())
    }
}

fn subject(tenant_id: TenantId, user_id: UserId) -> Subject {
    let credential = Credential::Session {
        session_id: SessionId(Uuid::nil()),
        user_id,
        role: Role::Member,
        method: SessionMethod::Password,
        amr: vec![AuthMethod::Pwd],
        has_factor: false,
        created_at: DateTime::<Utc>::UNIX_EPOCH,
        idle_expires_at: DateTime::UNIX_EPOCH,
    };
    Subject { credential, tenant_id, quota: Quota::default(), expires_at: DateTime::UNIX_EPOCH }
}
