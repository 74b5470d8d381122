//! The pool of one process.

use std::str::FromStr;
use std::time::Duration;

use service::config::Variable;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool};
use tenancy::TenantScope;

use crate::{Error, TenantTx};

/// Where the context's database is.
pub const DATABASE_URL: Variable = Variable {
    name: "SVC_DATABASE_URL",
    form: "postgres://user:password@host:port/database",
    default: None,
    secret: true,
    meaning: "The Postgres database, as the context's runtime role.",
};

/// Few connections beat many: a statement takes a fraction of a millisecond, and Postgres serves as many as it has cores.
const CONNECTIONS: u32 = 8;
/// A request that gets no connection within this time is told that the database is not available.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection that was idle for longer is asked whether it still lives; asking every time would cost a third of the
/// throughput, never asking would fail requests after the database has been away.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// A handle to the context's database. Clones share the pool.
#[derive(Clone)]
pub struct Database {
    pool: PgPool,
}

impl Database {
    /// Makes the pool; connections are made when they are needed, so this works while the database is away.
    ///
    /// # Errors
    /// The URL is malformed.
    pub fn new(url: &str, application: &str) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(url)?.application_name(application);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > TRUSTED_IDLE {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// The pool, for statements that call one of the schema's `security definer` functions.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Begins a transaction that sees one tenant's rows and nobody else's.
    ///
    /// # Errors
    /// The database is not available.
    pub async fn tenant(&self, scope: &TenantScope) -> Result<TenantTx, Error> {
        TenantTx::begin(&self.pool, scope).await
    }

    /// Closes every connection, waiting for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
