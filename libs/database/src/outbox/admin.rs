//! An outbox in a person's hands: looking at what does not move, and letting it begin anew.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::Outbox;
use crate::{Database, Error};

/// An effect that has not come about yet. What it is about is not told.
#[derive(Clone, Debug, Serialize, sqlx::FromRow)]
pub struct Pending {
    /// The row's id.
    pub outbox_id: Uuid,
    /// Whose.
    pub tenant_id: String,
    /// What kind of effect.
    pub kind: String,
    /// `parked` until a person acts, `held` until the schema lets it go, or `waiting`.
    pub state: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it is tried next, unless it is parked.
    pub due_at: DateTime<Utc>,
    /// How often it was tried.
    pub attempts: i32,
    /// Why it did not come about the last time.
    pub last_error: Option<String>,
}

impl Outbox {
    /// What is pending: parked rows first, then the others, oldest first.
    ///
    /// # Errors
    /// The database is not available.
    pub async fn list(&self, database: &Database, limit: i32) -> Result<Vec<Pending>, Error> {
        let list = format!("select * from {}.outbox_list($1)", self.schema);
        let rows = sqlx::query_as(sqlx::AssertSqlSafe(list)).bind(limit);
        Ok(rows.fetch_all(database.pool()).await?)
    }

    /// Lets one parked row begin anew, or all of them; tells how many there were.
    ///
    /// # Errors
    /// The database is not available.
    pub async fn retry(
        &self,
        database: &Database,
        outbox_id: Option<Uuid>,
        now: DateTime<Utc>,
    ) -> Result<i64, Error> {
        let retry = format!("select {}.outbox_retry($1, $2)", self.schema);
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(retry)).bind(outbox_id).bind(now);
        Ok(count.fetch_one(database.pool()).await?)
    }
}
