//! A pool of connections.
//!
//! The pool of sqlx sends Postgres a second message after each statement, in a separate task, and uses its connections in turn. This
//! pool gets the connection of a complete statement back without a message, and first uses the connection that was returned last: the
//! Postgres process of a connection that was idle has lost its data in the caches of the processor.

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

/// After this time without use, a connection is pinged before its next use. A ping before every use would cost a third of the throughput;
/// without pings, requests would fail after a restart of the database.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Short, so that a request can try further connections if the network has dropped this one.
const PING_TIMEOUT: Duration = Duration::from_millis(500);
/// After this time without use, a connection is closed. Shorter than the time after which networks drop idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// An older connection is closed: the memory of its Postgres process grows.
const MAX_AGE: Duration = Duration::from_mins(30);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
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
pub struct Pool(managed::Pool<Manager>);

impl Pool {
    pub(crate) fn new(
        options: PgConnectOptions,
        retired: Retired,
        max_connections: usize,
        acquire_timeout: Duration,
    ) -> Result<Self, sqlx::Error> {
        let manager = Manager { options: RwLock::new(options), retired, acquire_timeout };
        let pool = managed::Pool::builder(manager).max_size(max_connections).queue_mode(QueueMode::Lifo);
        Ok(Self(pool.build().map_err(|error| sqlx::Error::Configuration(error.into()))?))
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The database is not available, or all connections are in use for too long.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        match timeout(self.0.manager().acquire_timeout, self.0.get()).await {
            Ok(Ok(pooled)) => Ok(Connection::new(pooled)),
            Ok(Err(PoolError::Backend(error))) => Err(error),
            // No other error is possible: the pool has neither timeouts nor hooks, and is never closed.
            Ok(Err(_)) | Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    /// Connections that open from now on have these options.
    pub(crate) fn set_options(&self, options: PgConnectOptions) {
        *self.0.manager().options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Closes connections that are not in use, and are not needed or must not be used again.
    pub(crate) async fn close_idle(&self) {
        let manager = self.0.manager();
        let keep = |pooled: &Pooled, metrics: Metrics| {
            manager.can_reuse(pooled, metrics.age()) && metrics.last_used() <= IDLE_TIMEOUT
        };
        let closed = self.0.retain(|pooled, metrics| keep(pooled, metrics)).removed;
        // After an error or the timeout, the connection is closed without a message.
        join_all(closed.into_iter().map(|pooled| timeout(CLOSE_TIMEOUT, pooled.connection.close()))).await;
    }

    /// The maximum number of connections.
    pub fn max_connections(&self) -> usize {
        self.0.status().max_size
    }

    /// The numbers of idle and of busy connections. Connections that are being opened are busy.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let status = self.0.status();
        let users = status.size - status.available + status.waiting;
        (status.available, users.min(status.max_size))
    }
}

impl fmt::Debug for Pool {
    /// Without the options, which contain the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("status", &self.0.status()).finish_non_exhaustive()
    }
}

/// A connection in the pool.
struct Pooled {
    connection: PgConnection,
    /// Whether its last statement and its last transaction are complete.
    is_reusable: bool,
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

    fn can_reuse(&self, pooled: &Pooled, age: Duration) -> bool {
        pooled.is_reusable && age <= MAX_AGE && !self.retired.contains(age)
    }
}

impl managed::Manager for Manager {
    type Type = Pooled;
    type Error = sqlx::Error;

    /// Tries again while the database starts. Then it returns the last error, which is clearer than that of a timeout.
    async fn create(&self) -> Result<Pooled, sqlx::Error> {
        let last_attempt_at = Instant::now() + self.acquire_timeout - 2 * CONNECT_INTERVAL;
        loop {
            // On the heap, so that the futures of requests are small.
            match Box::pin(self.connect()).await {
                Ok(connection) => return Ok(Pooled { connection, is_reusable: false }),
                Err(error) if is_starting(&error) && Instant::now() < last_attempt_at => {
                    sleep(CONNECT_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// An error means that the next connection is used.
    async fn recycle(&self, pooled: &mut Pooled, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if !self.can_reuse(pooled, metrics.age()) {
            return Err(RecycleError::message("the connection must not be used again"));
        }
        if metrics.last_used() > PING_AFTER_IDLE {
            let ping = timeout(PING_TIMEOUT, Box::pin(pooled.connection.ping())).await;
            ping.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))?;
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
