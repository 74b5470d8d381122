//! A pool of connections.
//!
//! The pool of sqlx sends Postgres a second message after each statement, in a separate task, and uses its connections in turn. This
//! pool gets the connection of a complete statement back without a message, and first uses the connection that was returned last: the
//! Postgres process of a connection that was idle has lost its data in the caches of the processor.
//!
//! All connections are to one primary. A server that is read-only is rejected when a connection opens. That is enough for a standby: a
//! primary only becomes one by a restart, which ends its connections. A connection that reaches another server than the last one retires
//! all older ones.

mod connection;
mod executor;
mod retired;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use deadpool::managed::{self, Metrics, PoolError, QueueMode, RecycleError, RecycleResult};
use futures::future::join_all;
use parking_lot::RwLock;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, Row as _};
use tenancy::{PerTenant, TenantId};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

pub use connection::Connection;
pub(crate) use connection::Transaction;
pub(crate) use retired::Retired;

/// After this time without use, a connection is pinged before its next use. A ping before every use would cost a third of the throughput;
/// without pings, requests would fail after a restart of the database.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Short, so that a request can try further connections if the network has dropped this one.
const PING_TIMEOUT: Duration = Duration::from_millis(500);
/// After this time without use, a connection is closed. Shorter than the time after which networks drop idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// An older connection is closed: the memory of its Postgres process grows. It also limits how long a process uses a former primary that
/// was isolated but still runs: the new connection reaches the new primary.
const MAX_AGE: Duration = Duration::from_mins(5);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(100);
/// Longer than the statement timeout of the runtime roles, which does not apply to a commit that waits for a standby. Afterwards the
/// outcome is unknown.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(6);
/// Connections that requests leave free for lookups.
const RESERVED: usize = 1;

/// Whether the server is read-only, as a standby is; which server it is; and the process of the connection.
const STATE: &str = "select current_setting('transaction_read_only')::boolean, pg_postmaster_start_time()::text, pg_backend_pid()";

/// Whether the server is read-only now, and whether a statement of the service runs for longer than the timeout of the runtime roles
/// allows. Only a commit that waits for a standby or for the disk does.
const PROBE: &str = "select current_setting('transaction_read_only')::boolean, exists (
        select from pg_stat_activity
        where datname = current_database() and application_name = current_setting('application_name')
            and state = 'active' and query_start < now() - interval '10 seconds'
    )";

/// The server can lack acknowledged changes: it is a standby or otherwise read-only, or another server has
/// replaced it.
#[derive(Debug, thiserror::Error)]
#[error("the server is read-only or was replaced")]
struct NotPrimary;

/// The connections that each tenant may use and wait for.
pub(crate) type Turns = PerTenant<Option<Arc<Semaphore>>>;

/// Connections to one database, opened on first use. Clones share them. A reference is an executor of statements, each outside of a
/// transaction.
#[derive(Clone)]
pub struct Pool {
    connections: managed::Pool<Manager>,
    /// One permit per connection that may be in use at the same time. `None`: all of them.
    permits: Option<Arc<Semaphore>>,
    /// The same for those of one tenant. Its further statements wait here, so they are not in front of other tenants.
    turns: Option<Arc<Semaphore>>,
}

impl Pool {
    /// `other` is a pool that can ask the server about the connections of this one.
    pub(crate) fn new(
        options: PgConnectOptions,
        retired: Retired,
        max_connections: usize,
        acquire_timeout: Duration,
        other: Option<&Self>,
    ) -> Result<Self, sqlx::Error> {
        let other = other.map(|pool| pool.connections.clone());
        let manager = Manager { options: RwLock::new(options), retired, acquire_timeout, other };
        let pool = managed::Pool::builder(manager).max_size(max_connections).queue_mode(QueueMode::Lifo);
        let connections = pool.build().map_err(|error| sqlx::Error::Configuration(error.into()))?;
        Ok(Self { connections, permits: None, turns: None })
    }

    /// The same connections for statements that can wait for each other or for a standby. One connection remains free for the others.
    pub(crate) fn with_reserve(&self) -> Self {
        Self {
            permits: Some(Arc::new(Semaphore::new(self.max_size().saturating_sub(RESERVED)))),
            ..self.clone()
        }
    }

    /// The same connections for one tenant. As many of its statements as there are permits use or wait for a connection at the same time.
    pub(crate) fn for_tenant(&self, tenants: &Turns, tenant_id: &TenantId) -> Self {
        let is_idle = |turns: &mut Option<Arc<Semaphore>>| {
            turns.as_ref().is_none_or(|turns| Arc::strong_count(turns) == 1)
        };
        let turns = tenants.update(tenant_id, is_idle, |turns| {
            Arc::clone(turns.get_or_insert_with(|| Arc::new(Semaphore::new(self.max_connections()))))
        });
        Self { turns: Some(turns), ..self.clone() }
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The database is not available, or all connections are in use for too long.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        let acquired = async {
            let mut permits = [const { None }; 2];
            for (permit, semaphore) in permits.iter_mut().zip([&self.turns, &self.permits]) {
                if let Some(semaphore) = semaphore {
                    let acquired = Arc::clone(semaphore).acquire_owned().await;
                    *permit = Some(acquired.map_err(|_| sqlx::Error::PoolClosed)?);
                }
            }
            match self.connections.get().await {
                Ok(pooled) => Ok(Connection::new(pooled, permits)),
                Err(PoolError::Backend(error)) => Err(error),
                // No other error is possible: the pool has neither timeouts nor hooks, and is never closed.
                Err(_) => Err(sqlx::Error::PoolClosed),
            }
        };
        timeout(self.connections.manager().acquire_timeout, acquired)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Returns whether the server accepts writes, and whether it completes them. If it is read-only, no connection is used again.
    pub(crate) async fn probe(&self) -> bool {
        let state = sqlx::query_as::<_, (bool, bool)>(PROBE).fetch_one(self).await;
        let Ok((is_read_only, is_stalled)) = state else { return false };
        if is_read_only {
            self.connections.manager().retired.include_all();
        }
        !is_read_only && !is_stalled
    }

    /// Connections that open from now on have these options.
    pub(crate) fn set_options(&self, options: PgConnectOptions) {
        *self.connections.manager().options.write() = options;
    }

    /// Closes connections that are not in use, and are not needed or must not be used again.
    pub(crate) async fn close_idle(&self) {
        let manager = self.connections.manager();
        let keep = |pooled: &Pooled, metrics: Metrics| {
            manager.can_reuse(pooled) && metrics.last_used() <= IDLE_TIMEOUT
        };
        let closed = self.connections.retain(|pooled, metrics| keep(pooled, metrics)).removed;
        // After an error or the timeout, the connection is closed without a message.
        join_all(closed.into_iter().map(|pooled| timeout(CLOSE_TIMEOUT, pooled.connection.close()))).await;
    }

    /// The maximum number of connections.
    pub(crate) fn max_size(&self) -> usize {
        self.connections.status().max_size
    }

    /// The maximum number of connections that are in use at the same time.
    pub fn max_connections(&self) -> usize {
        self.max_size() - if self.permits.is_some() { RESERVED } else { 0 }
    }

    /// The numbers of idle and of busy connections. Connections that are being opened are busy, and those that are not free for the users
    /// of this pool.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let status = self.connections.status();
        let users = status.size - status.available + status.waiting;
        let is_full = self.permits.as_ref().is_some_and(|permits| permits.available_permits() == 0);
        let busy = (users + if is_full { RESERVED } else { 0 }).min(status.max_size);
        (status.available.min(status.max_size - busy), busy)
    }
}

impl fmt::Debug for Pool {
    /// Without the options, which contain the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("status", &self.connections.status()).finish_non_exhaustive()
    }
}

/// A connection in the pool.
struct Pooled {
    connection: PgConnection,
    /// Before its attempt to connect.
    opened_at: Instant,
    /// Its process on the server.
    process_id: i32,
    /// Whether its last statement and its last transaction are complete.
    is_reusable: bool,
}

/// Opens and checks connections.
struct Manager {
    options: RwLock<PgConnectOptions>,
    retired: Retired,
    acquire_timeout: Duration,
    other: Option<managed::Pool<Self>>,
}

impl Manager {
    async fn connect(&self) -> Result<Pooled, sqlx::Error> {
        let opened_at = Instant::now();
        let options = self.options.read().clone();
        let mut connection = PgConnection::connect_with(&options).await?;
        let state = sqlx::raw_sql(STATE).fetch_one(&mut connection).await?;
        let is_read_only: bool = state.try_get(0)?;
        if !is_read_only {
            self.retired.include_other_servers(&state.try_get::<String, _>(1)?, opened_at);
        }
        if is_read_only || self.retired.contains(opened_at) {
            return Err(sqlx::Error::Io(io::Error::other(NotPrimary)));
        }
        Ok(Pooled { connection, opened_at, process_id: state.try_get(2)?, is_reusable: false })
    }

    fn can_reuse(&self, pooled: &Pooled) -> bool {
        pooled.is_reusable
            && pooled.opened_at.elapsed() <= MAX_AGE
            && !self.retired.contains(pooled.opened_at)
    }
}

impl managed::Manager for Manager {
    type Type = Pooled;
    type Error = sqlx::Error;

    /// Tries again while the database starts, or while its address leads to a standby. Then it returns the last error, which is clearer
    /// than that of a timeout.
    async fn create(&self) -> Result<Pooled, sqlx::Error> {
        let last_attempt_at = tokio::time::Instant::now() + self.acquire_timeout - 2 * CONNECT_INTERVAL;
        loop {
            // On the heap, so that the futures of requests are small.
            match Box::pin(self.connect()).await {
                Ok(pooled) => return Ok(pooled),
                Err(error) if is_starting(&error) && tokio::time::Instant::now() < last_attempt_at => {
                    sleep(CONNECT_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// An error means that the next connection is used.
    async fn recycle(&self, pooled: &mut Pooled, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if !self.can_reuse(pooled) {
            return Err(RecycleError::message("the connection must not be used again"));
        }
        if metrics.last_used() > PING_AFTER_IDLE {
            let ping = timeout(PING_TIMEOUT, Box::pin(pooled.connection.ping())).await;
            ping.unwrap_or_else(|_| Err(timed_out()))?;
        }
        Ok(())
    }
}

/// Returns whether the database may accept connections soon.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => {
            error.kind() == io::ErrorKind::ConnectionRefused
                || error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<NotPrimary>)
        }
        // Too many connections; starting up.
        sqlx::Error::Database(error) => matches!(error.code().as_deref(), Some("53300" | "57P03")),
        _ => false,
    }
}

/// The error of a statement without a response in time. Its outcome is unknown.
pub(crate) fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(io::ErrorKind::TimedOut.into())
}
