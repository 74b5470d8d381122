//! What is counted no longer.

use chrono::{DateTime, TimeDelta, Utc};
use database::{Database, Error, TenantTx};

use crate::domain::attempt::{AccountKey, LOCKOUT_THRESHOLD, TRUSTED_SOURCE_WINDOW};

/// Forgets every failure at an account, from anywhere; not where it was logged in to, else whoever locks it could do so
/// again before its owner is back.
pub(crate) async fn delete(tx: &mut TenantTx, account: &AccountKey, now: DateTime<Utc>) -> Result<(), Error> {
    let keys = [Some(account.current), account.previous];
    let keys: Vec<Vec<u8>> = keys.into_iter().flatten().map(Vec::from).collect();
    sqlx::query!(
        "-- attempt.delete
        with attempts as (
            delete from identity.attempts where account_key = any($1) and last_success_at is null
        ),
        trusted as (
            update identity.attempts set failures = 0, waits_until = $2
            where account_key = any($1) and last_success_at is not null
        )
        delete from identity.failures where account_key = any($1)",
        &keys,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Deletes what says nothing any more, at most `limit` rows of each; tells how many of the more numerous ones.
///
/// Failures in a row are forgotten a month after the last one, since an account that does not exist never succeeds; but
/// never those that lock an account which does. One that comes into being later begins without any: see
/// [`delete`] when an invite is accepted.
pub(crate) async fn delete_before(database: &Database, now: DateTime<Utc>, limit: i64) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- attempt.delete_before
        with attempts as (
            delete from identity.attempts where ctid = any(array(
                select ctid from identity.attempts
                where expires_at <= $1 and (last_success_at is null or last_success_at <= $2)
                limit $5
                for update skip locked
            ))
            returning 1
        ),
        failures as (
            delete from identity.failures where ctid = any(array(
                select ctid from identity.failures
                where last_failed_at <= $3 and (in_a_row < $4 or not of_user)
                limit $5
                for update skip locked
            ))
            returning 1
        )
        select greatest((select count(*) from attempts), (select count(*) from failures)) as "deleted!""#,
        now,
        now - TRUSTED_SOURCE_WINDOW,
        now - TimeDelta::days(30),
        LOCKOUT_THRESHOLD,
        limit
    )
    .fetch_one(database.pool())
    .await?;
    Ok(deleted)
}
