//! A connection of a pool, and a transaction on it.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::time::Duration;

use deadpool::managed::{self, Object};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{Manager, Pool, STATEMENT_TIMEOUT, timed_out};

/// Longer than the statement timeout of the runtime roles. Then the pool asks the server whether it still executes the statement.
const RESET_TIMEOUT: Duration = Duration::from_secs(10);

/// The permits of a tenant and of the pool.
type Permits = [Option<OwnedSemaphorePermit>; 2];

/// A connection that returns to its pool when it is dropped: after its last statement, which may have been cancelled, is complete, and its
/// transaction, if it has one, is rolled back.
pub struct Connection {
    /// `None` if it was returned.
    pooled: Option<Object<Manager>>,
    /// Returned with the connection.
    permits: Permits,
    is_in_transaction: bool,
}

impl Connection {
    pub(super) fn new(mut pooled: Object<Manager>, permits: Permits) -> Self {
        pooled.is_reusable = false;
        Self { pooled: Some(pooled), permits, is_in_transaction: false }
    }

    /// Returns the connection to the pool at once. Its last statement and its transaction are complete.
    pub(super) fn release(mut self) {
        if let Some(mut pooled) = self.pooled.take() {
            pooled.is_reusable = true;
        }
    }
}

#[expect(clippy::expect_used, reason = "only `release` and a drop return the connection")]
impl Deref for Connection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.pooled.as_ref().expect("the connection is not returned").connection
    }
}

#[expect(clippy::expect_used, reason = "only `release` and a drop return the connection")]
impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.pooled.as_mut().expect("the connection is not returned").connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(pooled) = self.pooled.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => {
                drop(runtime.spawn(reset(pooled, std::mem::take(&mut self.permits), self.is_in_transaction)));
            }
            Err(_) => drop(Object::take(pooled)),
        }
    }
}

/// Returns the connection to its pool after the end of its statement and of its transaction. Closes it if that fails.
///
/// A commit can wait for a standby for any time, and closing the connection would not end it. So the connection keeps its place in the
/// pool as long as the server executes the statement: a process never causes more connections than its pools have.
async fn reset(mut pooled: Object<Manager>, _permits: Permits, is_in_transaction: bool) {
    let (process_id, opened_at, pool) = (pooled.process_id, pooled.opened_at, Object::pool(&pooled));
    let result = {
        let connection = &mut pooled.connection;
        let mut reset = pin!(async {
            if is_in_transaction {
                sqlx::raw_sql("rollback").execute(connection).await.map(drop)
            } else {
                connection.ping().await
            }
        });
        loop {
            match (timeout(RESET_TIMEOUT, &mut reset).await, &pool) {
                (Ok(result), _) => break result,
                (Err(_), Some(pool))
                    if !pool.manager().retired.contains(opened_at)
                        && is_executing(pool, process_id).await => {}
                (Err(_), _) => break Err(timed_out()),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(?error, "failed to reset a database connection; it is closed");
        drop(Object::take(pooled));
    } else {
        pooled.is_reusable = true;
    }
}

/// Returns whether the server executes a statement of this connection. False if the server cannot be asked.
async fn is_executing(pool: &managed::Pool<Manager>, process_id: i32) -> bool {
    let connections = pool.manager().other.as_ref().unwrap_or(pool).clone();
    let executing = "select exists (select from pg_stat_activity where pid = $1 and state = 'active')";
    let executing = sqlx::query_scalar::<_, bool>(executing).bind(process_id);
    executing.fetch_one(&Pool { connections, permits: None, turns: None }).await.unwrap_or(false)
}

/// A transaction. A drop without a commit rolls back.
pub struct Transaction(Connection);

impl Transaction {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.0
    }

    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        // After an error, the transaction can still be open.
        let commit = sqlx::raw_sql("commit").execute(&mut *self.0);
        timeout(STATEMENT_TIMEOUT, commit).await.unwrap_or_else(|_| Err(timed_out()))?;
        self.0.release();
        Ok(())
    }
}

impl Pool {
    /// Begins a transaction with statements that follow `begin`, in one round trip.
    pub(crate) async fn begin(&self, statements: String) -> Result<Transaction, sqlx::Error> {
        let mut connection = self.acquire().await?;
        // First, because the future can be dropped while it waits for the response.
        connection.is_in_transaction = true;
        let begin = AssertSqlSafe(format!("begin; {statements}"));
        let begin = sqlx::raw_sql(begin).execute(&mut *connection);
        timeout(STATEMENT_TIMEOUT, begin).await.unwrap_or_else(|_| Err(timed_out()))?;
        Ok(Transaction(connection))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use testkit::TestDatabase;

    use crate::Database;
    use crate::pool::MAX_AGE;

    #[tokio::test]
    async fn a_connection_is_replaced_after_its_maximum_age() {
        let test = TestDatabase::create().await.unwrap();
        let database = Database::new(&test.url("svc_identity"), "identity").unwrap();
        let pool = database.pool();
        let connection = pool.acquire().await.unwrap();
        let first = connection.pooled.as_ref().unwrap().process_id;
        connection.release();
        let mut connection = pool.acquire().await.unwrap();
        let pooled = connection.pooled.as_mut().unwrap();
        assert_eq!(pooled.process_id, first);
        pooled.opened_at = Instant::now().checked_sub(MAX_AGE).unwrap();
        connection.release();
        assert_ne!(pool.acquire().await.unwrap().pooled.as_ref().unwrap().process_id, first);
    }
}
