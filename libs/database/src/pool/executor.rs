//! Statements on any connection of a pool. A statement that fails or is cancelled leaves its connection to be reset.

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres, SqlStr};
use tokio::time::timeout;

use super::{Pool, STATEMENT_TIMEOUT, timed_out};

impl<'p> Executor<'p> for &'p Pool {
    type Database = Postgres;

    /// Reads all rows before it returns the first one.
    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let results = async move {
            let mut connection = self.acquire().await?;
            let results = connection.fetch_many(query).try_collect::<Vec<_>>();
            let results = timeout(STATEMENT_TIMEOUT, results).await.unwrap_or_else(|_| Err(timed_out()))?;
            connection.release();
            Ok(results)
        };
        results.map_ok(|results| stream::iter(results).map(Ok)).try_flatten_stream().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async move {
            let mut connection = self.acquire().await?;
            let row = timeout(STATEMENT_TIMEOUT, connection.fetch_optional(query));
            let row = row.await.unwrap_or_else(|_| Err(timed_out()))?;
            connection.release();
            Ok(row)
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'p: 'e,
    {
        Box::pin(async move { self.acquire().await?.prepare_with(sql, parameters).await })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'p: 'e,
    {
        Box::pin(async move { self.acquire().await?.describe(sql).await })
    }
}
