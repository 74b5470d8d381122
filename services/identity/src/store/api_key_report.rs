//! Reports of new API keys that were received, so that a repeated one has no effect.

use chrono::{DateTime, TimeDelta, Utc};
use database::{Database, Error, TenantTx};
use tenancy::KeyId;

/// How long a report is known. Longer than session takes to repeat a report without a response.
const KEEP: TimeDelta = TimeDelta::days(1);

/// Inserts a report. Returns whether it is the first one of the key. A concurrent report waits for the end of the transaction.
pub(crate) async fn insert(tx: &mut TenantTx, key_id: KeyId) -> Result<bool, Error> {
    let inserted = sqlx::query!(
        "-- api_key_report.insert
        insert into identity.api_key_reports (key_id, reported_at)
        values ($1, $2)
        on conflict (key_id) do nothing",
        key_id.0,
        tx.now()
    );
    Ok(tx.execute(inserted).await? > 0)
}

/// Deletes old reports. Returns their number, at most `limit`.
pub(crate) async fn delete_before(database: &Database, now: DateTime<Utc>, limit: i64) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- api_key_report.delete_before
        with deleted as (
            delete from identity.api_key_reports where key_id in (
                select key_id from identity.api_key_reports
                where reported_at <= $1
                limit $2
                for update skip locked
            )
            returning 1
        )
        select count(*) as "deleted!" from deleted"#,
        now - KEEP,
        limit
    );
    Ok(deleted.fetch_one(database.pool()).await?)
}
