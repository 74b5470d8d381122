//! Sessions made by hand in the database, and the look-up of them as session does it, through a bare pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use authn::{Introspection, Introspector, Unavailable};
use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::session::SessionMethod;
use hashing::TokenDigest;
use sqlx::Row as _;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tenancy::{SessionId, TenantId, UserId};
use uuid::Uuid;

/// As many as session has.
const CONNECTIONS: u32 = 8;

/// The database of the running system. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Sessions {
    pool: PgPool,
    user_id: UserId,
}

impl Sessions {
    pub(crate) async fn connect(url: &str, user_id: UserId) -> anyhow::Result<Self> {
        let options = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
        Ok(Self { pool: options.connect(url).await?, user_id })
    }

    /// Makes sessions of the user with these digests.
    pub(crate) async fn insert(&self, digests: &[TokenDigest]) -> anyhow::Result<()> {
        let digests: Vec<_> = digests.iter().map(TokenDigest::as_bytes).collect();
        sqlx::query(
            "insert into session.sessions (
                session_id, tenant_id, user_id, digest, method, credential_version, session_version, created_at,
                last_seen_at, idle_seconds, idle_expires_at, expires_at
            )
            select
                gen_random_uuid(), tenant_id, user_id, digest, 'password', credential_version, session_version, now(),
                now(), 3600, now() + interval '1 hour', now() + interval '12 hours'
            from session.subjects
            join session.tenants using (tenant_id)
            cross join unnest($1::bytea[]) as made (digest)
            where user_id = $2",
        )
        .bind(digests)
        .bind(self.user_id.0)
        .execute(&self.pool)
        .await?;
        sqlx::query("vacuum analyze session.sessions").execute(&self.pool).await?;
        Ok(())
    }

    /// What the table takes with its indexes.
    pub(crate) async fn bytes(&self) -> anyhow::Result<u64> {
        let size = "select pg_total_relation_size('session.sessions')";
        let bytes: i64 = sqlx::query_scalar(size).fetch_one(&self.pool).await?;
        Ok(bytes.unsigned_abs())
    }
}

#[async_trait::async_trait]
impl Introspector for Sessions {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let asked: Vec<_> = digests.iter().map(TokenDigest::as_bytes).collect();
        let rows = sqlx::query("select * from session.find_credentials($1)")
            .bind(asked)
            .fetch_all(&self.pool)
            .await
            .map_err(Unavailable::because)?;
        let mut answers = vec![None; digests.len()];
        for row in rows {
            let place: i64 = row.try_get("position").map_err(Unavailable::because)?;
            let tenant_id: TenantId = row.try_get("tenant_id").map_err(Unavailable::because)?;
            let answer = usize::try_from(place - 1).ok().and_then(|place| answers.get_mut(place));
            if let Some(answer) = answer {
                *answer = Some(Arc::new(subject(tenant_id, self.user_id)));
            }
        }
        Ok(answers)
    }
}

/// Says of every credential that it lives, and counts.
pub(crate) struct Answering(Arc<AtomicUsize>);

impl Answering {
    pub(crate) fn to(asked: &Arc<AtomicUsize>) -> Self {
        Self(Arc::clone(asked))
    }
}

#[async_trait::async_trait]
impl Introspector for Answering {
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
        created_at: DateTime::<Utc>::UNIX_EPOCH,
        idle_expires_at: DateTime::UNIX_EPOCH,
    };
    Subject { credential, tenant_id, quota: Quota::default(), expires_at: DateTime::UNIX_EPOCH }
}
