//! A pool of connections.
//!
//! The pool of sqlx sends Postgres a second message after each statement, in a task of its own, and uses its connections in turn. This pool
//! gets a connection back without a message if its last statement is complete, and uses the last one first: the Postgres process of a
//! connection that was idle has lost its data in the caches of the processor.

mod connection;
mod executor;

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use deadpool::managed::{self, Metrics, PoolError, QueueMode, RecycleError, RecycleResult};
use futures::future::join_all;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep, timeout};

use crate::rotation::Retired;
pub use connection::Connection;
pub(crate) use connection::Transaction;

/// A connection that was idle for longer is pinged before use. A ping before every use would cost a third of the throughput;
/// without pings, requests would fail after a restart of the database.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// A connection that was idle for longer is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// A connection that is older is replaced: the memory of its Postgres process grows.
const MAX_AGE: Duration = Duration::from_mins(30);
/// Interval between attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// Statements are planned once per connection, perhaps while the tables are empty, so all plans use indexes and stay fast when the
/// tables have grown. Otherwise Postgres would plan statements with arrays at every execution, which takes longer than most
/// statements.
const PLANNER_SETTINGS: &str = "set plan_cache_mode = force_generic_plan;
    set enable_seqscan = off;
    set enable_hashjoin = off;
    set enable_mergejoin = off";

/// Connections to one database, opened on first use. Clones share them. A reference is an executor of statements, each outside of a
/// transaction.
#[derive(Clone)]
pub struct Pool {
    connections: managed::Pool<Manager>,
    acquire_timeout: Duration,
}

impl Pool {
    pub(crate) fn new(
        options: PgConnectOptions,
        retired: Retired,
        max_connections: usize,
        acquire_timeout: Duration,
    ) -> Result<Self, sqlx::Error> {
        let manager = Manager { options: RwLock::new(options), retired, acquire_timeout };
        let connections = managed::Pool::builder(manager)
            .max_size(max_connections)
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(|error| sqlx::Error::Configuration(error.into()))?;
        Ok(Self { connections, acquire_timeout })
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The database is not available, or all connections are in use for too long.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        match timeout(self.acquire_timeout, self.connections.get()).await {
            Ok(Ok(connection)) => Ok(Connection::new(connection)),
            Ok(Err(PoolError::Backend(error))) => Err(error),
            Ok(Err(PoolError::Closed)) => Err(sqlx::Error::PoolClosed),
            // The pool of deadpool has neither timeouts nor hooks.
            Ok(Err(_)) | Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    /// Connections that open from now on have these options.
    pub(crate) fn set_options(&self, options: PgConnectOptions) {
        let manager = self.connections.manager();
        *manager.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Closes connections that are not needed.
    pub(crate) async fn close_idle(&self) {
        self.close_unless(|metrics| metrics.last_used() <= IDLE_TIMEOUT).await;
    }

    /// Closes all connections, those in use when they are returned.
    pub(crate) async fn close(&self) {
        self.close_unless(|_| false).await;
        self.connections.close();
    }

    async fn close_unless(&self, keep: impl Fn(Metrics) -> bool) {
        let closed = self.connections.retain(|_, metrics| keep(metrics)).removed;
        // An error means that the connection was closed already.
        join_all(closed.into_iter().map(PgConnection::close)).await;
    }

    /// The maximum number of connections.
    pub fn max_connections(&self) -> usize {
        self.connections.status().max_size
    }

    /// The numbers of idle and of busy connections.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let status = self.connections.status();
        (status.available, status.size - status.available)
    }
}

impl fmt::Debug for Pool {
    /// Without the options, which contain the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("status", &self.connections.status()).finish_non_exhaustive()
    }
}

/// Opens and checks connections.
struct Manager {
    options: RwLock<PgConnectOptions>,
    retired: Retired,
    acquire_timeout: Duration,
}

impl Manager {
    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let options = self.options.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut connection = PgConnection::connect_with(&options).await?;
        // Not options of the connection: a pooler would reject them.
        sqlx::raw_sql(PLANNER_SETTINGS).execute(&mut connection).await?;
        Ok(connection)
    }
}

impl managed::Manager for Manager {
    type Type = PgConnection;
    type Error = sqlx::Error;

    /// Tries again while the database starts. Then it returns the last error, which says more than that of a timeout.
    async fn create(&self) -> Result<PgConnection, sqlx::Error> {
        let last_attempt_at = Instant::now() + self.acquire_timeout - 2 * CONNECT_INTERVAL;
        loop {
            // On the heap, so that the futures of requests are small.
            match Box::pin(self.connect()).await {
                Err(error) if is_starting(&error) && Instant::now() < last_attempt_at => {
                    sleep(CONNECT_INTERVAL).await;
                }
                result => return result,
            }
        }
    }

    async fn recycle(&self, connection: &mut PgConnection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        let age = metrics.age();
        if age > MAX_AGE || self.retired.contains(age) {
            return Err(RecycleError::message("the connection is replaced"));
        }
        if metrics.last_used() > PING_AFTER_IDLE {
            Box::pin(connection.ping()).await?;
        }
        Ok(())
    }
}

/// Returns whether the database may accept connections soon.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        // Too many connections; starting up.
        sqlx::Error::Database(error) => matches!(error.code().as_deref(), Some("53300" | "57P03")),
        _ => false,
    }
}
