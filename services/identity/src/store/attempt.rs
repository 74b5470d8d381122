//! Attempts at passwords, by account and source address, and by account alone. The tables belong to no tenant.

use chrono::{DateTime, TimeDelta, Utc};
use database::{Database, Error, TenantTx};

use crate::domain::attempt::{AccountKey, WAITS};

/// What an attempt was told when it was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Whether it came outside a wait; else it does not count.
    pub(crate) admitted: bool,
    /// Failures in a row, this one included.
    pub(crate) in_a_row: i32,
}

/// Counts an attempt as a failure, in one statement that writes the same rows whatever it decides.
pub(crate) async fn count(
    database: &Database,
    account: &AccountKey,
    source: &str,
    now: DateTime<Utc>,
) -> Result<Counted, Error> {
    if let Some(previous) = account.previous {
        carry_over(database, &account.current, &previous).await?;
    }
    let counted = sqlx::query_as!(
        Counted,
        r#"-- attempt.count
        with attempt as (
            insert into identity.attempts as known (account_key, source, failures, waits_until, expires_at, admitted)
            values ($1, $2, 1, $3, $3::timestamptz + interval '24 hours', true)
            on conflict (account_key, source) do update
            set admitted = least(known.waits_until, known.expires_at) <= $3,
                failures = case
                    when known.expires_at <= $3 then 1
                    when known.waits_until <= $3 then known.failures + 1
                    else known.failures
                end,
                waits_until = case
                    when known.expires_at <= $3 then $3
                    when known.waits_until <= $3
                        then $3::timestamptz + make_interval(secs => ($4::int[])[least(known.failures + 1, cardinality($4))])
                    else known.waits_until
                end,
                expires_at = case
                    when known.expires_at <= $3 then $3::timestamptz + interval '24 hours'
                    else known.expires_at
                end
            returning admitted
        )
        insert into identity.failures as known (account_key, in_a_row, last_failed_at)
        select $1, admitted::int, $3 from attempt
        on conflict (account_key) do update
        set in_a_row = known.in_a_row + excluded.in_a_row, last_failed_at = excluded.last_failed_at
        returning (select admitted from attempt) as "admitted!", in_a_row"#,
        account.current.as_slice(),
        source,
        now,
        WAITS.as_slice()
    )
    .fetch_one(database.pool())
    .await?;
    Ok(counted)
}

/// What was counted under the key before a rotation is counted under the new one from now on.
async fn carry_over(database: &Database, current: &[u8], previous: &[u8]) -> Result<(), Error> {
    sqlx::query!(
        "-- attempt.carry_over
        with attempts as (
            update identity.attempts as old set account_key = $1
            where account_key = $2
                and not exists (select from identity.attempts where account_key = $1 and source = old.source)
        )
        update identity.failures set account_key = $1
        where account_key = $2 and not exists (select from identity.failures where account_key = $1)",
        current,
        previous
    )
    .execute(database.pool())
    .await?;
    Ok(())
}

/// The password was right: nobody waits any longer, and the row of failures ends. Failures from this address still count
/// for the day, but for this one, which was none.
pub(crate) async fn mark_succeeded(
    database: &Database,
    account: &AccountKey,
    source: &str,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "-- attempt.mark_succeeded
        with attempt as (
            update identity.attempts set failures = greatest(failures - 1, 0), waits_until = $3
            where account_key = $1 and source = $2
        )
        delete from identity.failures where account_key = $1",
        account.current.as_slice(),
        source,
        now
    )
    .execute(database.pool())
    .await?;
    Ok(())
}

/// The password was never looked at: the attempt does not count.
pub(crate) async fn mark_unchecked(
    database: &Database,
    account: &AccountKey,
    source: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "-- attempt.mark_unchecked
        with attempt as (
            update identity.attempts set failures = greatest(failures - 1, 0)
            where account_key = $1 and source = $2
        )
        update identity.failures set in_a_row = greatest(in_a_row - 1, 0) where account_key = $1",
        account.current.as_slice(),
        source
    )
    .execute(database.pool())
    .await?;
    Ok(())
}

/// Forgets everything that was counted at an account, from anywhere.
pub(crate) async fn delete(tx: &mut TenantTx, account: &AccountKey) -> Result<(), Error> {
    let keys = [Some(account.current), account.previous];
    let keys: Vec<Vec<u8>> = keys.into_iter().flatten().map(Vec::from).collect();
    sqlx::query!(
        "-- attempt.delete
        with attempts as (delete from identity.attempts where account_key = any($1))
        delete from identity.failures where account_key = any($1)",
        &keys
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Deletes what says nothing any more, at most `limit` rows of each; tells how many of the more numerous ones.
///
/// Failures in a row are forgotten a month after the last one, since an account that does not exist never succeeds; but
/// never those that lock an account.
pub(crate) async fn delete_before(
    database: &Database,
    now: DateTime<Utc>,
    locked_from: i32,
    limit: i64,
) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- attempt.delete_before
        with attempts as (
            delete from identity.attempts where ctid = any(array(
                select ctid from identity.attempts where expires_at <= $1 limit $4 for update skip locked
            ))
            returning 1
        ),
        failures as (
            delete from identity.failures where ctid = any(array(
                select ctid from identity.failures
                where last_failed_at <= $2 and in_a_row < $3
                limit $4
                for update skip locked
            ))
            returning 1
        )
        select greatest((select count(*) from attempts), (select count(*) from failures)) as "deleted!""#,
        now,
        now - TimeDelta::days(30),
        locked_from,
        limit
    )
    .fetch_one(database.pool())
    .await?;
    Ok(deleted)
}
