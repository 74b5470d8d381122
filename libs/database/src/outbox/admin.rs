//! Outbox commands for an administrator: list undelivered messages, and retry dead-lettered ones.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tenancy::OutboxId;

use crate::{Database, Error};

/// A message that is not delivered yet, without its payload.
#[derive(Clone, Debug, Serialize, sqlx::FromRow)]
pub struct UndeliveredMessage {
    /// The id of the row.
    pub outbox_id: OutboxId,
    /// The tenant.
    pub tenant_id: String,
    /// The kind of message.
    pub kind: String,
    /// `dead_lettered`: until it is retried; `held`: until the schema releases it; `pending`: due now or later.
    pub state: String,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When the next attempt is due, unless it is dead-lettered.
    pub due_at: DateTime<Utc>,
    /// The number of attempts.
    pub attempts: i32,
    /// The error of the last attempt.
    pub last_error: Option<String>,
}

/// Lists at most `limit` undelivered messages of all tenants: dead-lettered ones first, then the others, oldest first.
///
/// # Errors
/// The database is not available.
pub async fn list(database: &Database, limit: i32) -> Result<Vec<UndeliveredMessage>, Error> {
    let list = format!("select * from {}.outbox_list($1)", database.schema());
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(list)).bind(limit).fetch_all(database.pool()).await?)
}

/// Schedules one dead-lettered message, or all of them, for retry. Returns their number.
///
/// # Errors
/// The database is not available.
pub async fn retry(
    database: &Database,
    outbox_id: Option<OutboxId>,
    now: DateTime<Utc>,
) -> Result<i64, Error> {
    let retry = format!("select {}.outbox_retry($1, $2)", database.schema());
    let count = sqlx::query_scalar(sqlx::AssertSqlSafe(retry)).bind(outbox_id).bind(now);
    Ok(count.fetch_one(database.pool()).await?)
}
