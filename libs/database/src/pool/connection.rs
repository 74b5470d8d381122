//! A connection of a pool, and a transaction on it.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool::managed::Object;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{Manager, Pool};

/// Longer than the statement timeout of the runtime roles.
const RESET_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that returns to its pool when it is dropped: after its last statement, which may have been cancelled, is complete, and its
/// transaction, if it has one, is rolled back.
pub struct Connection {
    /// `None` if it was returned.
    pooled: Option<Object<Manager>>,
    is_in_transaction: bool,
}

impl Connection {
    pub(super) fn new(mut pooled: Object<Manager>) -> Self {
        pooled.is_reusable = false;
        Self { pooled: Some(pooled), is_in_transaction: false }
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
            Ok(runtime) => drop(runtime.spawn(reset(pooled, self.is_in_transaction))),
            Err(_) => drop(Object::take(pooled)),
        }
    }
}

/// Returns the connection to its pool after the end of its statement and of its transaction. Closes it if that fails.
async fn reset(mut pooled: Object<Manager>, is_in_transaction: bool) {
    let connection = &mut pooled.connection;
    let reset = async {
        if is_in_transaction {
            sqlx::raw_sql("rollback").execute(connection).await.map(drop)
        } else {
            connection.ping().await
        }
    };
    match timeout(RESET_TIMEOUT, reset).await {
        Ok(Ok(())) => pooled.is_reusable = true,
        result => {
            tracing::debug!(?result, "failed to reset a database connection; it is closed");
            drop(Object::take(pooled));
        }
    }
}

/// A transaction. A drop without a commit rolls back.
pub struct Transaction(Connection);

impl Transaction {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.0
    }

    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        // After an error, the transaction can still be open.
        sqlx::raw_sql("commit").execute(&mut *self.0).await?;
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
        sqlx::raw_sql(begin).execute(&mut *connection).await?;
        Ok(Transaction(connection))
    }
}
