//! Deletion of rows of all tenants, in small batches.

use chrono::{DateTime, Utc};
use database::{Database, Error};

/// Deletes sessions, API keys, device grants and producers that have been inactive since before a time, at most `limit` of
/// each. Returns the largest of their numbers.
pub(crate) async fn purge(database: &Database, before: DateTime<Utc>, limit: i32) -> Result<i64, Error> {
    let purged = sqlx::query_scalar!(
        r#"-- deletion.purge
        select session.purge($1, $2) as "purged!""#,
        before,
        limit
    );
    Ok(purged.fetch_one(database.pool()).await?)
}

/// Deletes sessions, API keys and device grants of one deleted tenant, at most `limit` of each. Returns 0 if none is left.
pub(crate) async fn erase_tenants(database: &Database, now: DateTime<Utc>, limit: i32) -> Result<i64, Error> {
    let erased = sqlx::query_scalar!(
        r#"-- deletion.erase_tenants
        select session.erase_tenants($1, $2) as "erased!""#,
        now,
        limit
    );
    Ok(erased.fetch_one(database.pool()).await?)
}
