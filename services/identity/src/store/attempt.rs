//! Attempts at passwords, by account and source address, and by account alone. The tables belong to no tenant.

mod forgotten;

use chrono::{DateTime, Utc};
use database::{Database, Error, TenantTx};

pub(crate) use self::forgotten::{delete, delete_before};
use crate::domain::attempt::{
    ATTEMPT_TIMEOUT, AccountKey, LOCKOUT_THRESHOLD, MOST_AT_ONCE, TRUSTED_SOURCE_WINDOW, WAITS,
};

/// One account from one source, since a time: what is counted.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) account: AccountKey,
    pub(crate) source: String,
    pub(crate) since: DateTime<Utc>,
}

/// What an attempt was told when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// Whether it came outside a wait; else it does not count.
    pub(crate) admitted: bool,
    /// Whether too many are under way; then this one is not.
    pub(crate) crowded: bool,
    /// Whether the account was logged in to from there lately.
    pub(crate) trusted: bool,
    /// Failures in a row, from anywhere.
    pub(crate) in_a_row: i32,
}

/// Begins an attempt, in one statement that writes the same row whatever it decides.
pub(crate) async fn begin(database: &Database, origin: &Origin) -> Result<Begun, Error> {
    let Origin { account, source, since } = origin;
    if let Some(previous) = account.previous {
        carry_over(database, &account.current, &previous).await?;
    }
    let begun = sqlx::query_as!(
        Begun,
        r#"-- attempt.begin
        with attempt as (
            insert into identity.attempts as known
                (account_key, source, failures, waits_until, expires_at, admitted, begun)
            values ($1, $2, 0, $3, $3::timestamptz + interval '24 hours', true, array[$3::timestamptz])
            on conflict (account_key, source) do update
            set admitted = least(known.waits_until, known.expires_at) <= $3,
                failures = case when known.expires_at <= $3 then 0 else known.failures end,
                waits_until = case when known.expires_at <= $3 then $3 else known.waits_until end,
                expires_at = case
                    when known.expires_at <= $3 then $3::timestamptz + interval '24 hours'
                    else known.expires_at
                end,
                (crowded, begun) = (
                    select
                        cardinality(live) >= $5,
                        case when cardinality(live) < $5 then live || $3::timestamptz else live end
                    from (select array(
                        select since from unnest(known.begun) as since where since > $4
                    )) as under_way (live)
                )
            returning admitted, crowded, last_success_at
        )
        select
            admitted as "admitted!", crowded as "crowded!", coalesce(last_success_at > $6, false) as "trusted!",
            coalesce((select in_a_row from identity.failures where account_key = $1), 0) as "in_a_row!"
        from attempt"#,
        account.current.as_slice(),
        source,
        since,
        *since - ATTEMPT_TIMEOUT,
        MOST_AT_ONCE,
        *since - TRUSTED_SOURCE_WINDOW
    )
    .fetch_one(database.pool())
    .await?;
    Ok(begun)
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

/// It came to nothing. When it counts, the next one waits, and there is one more failure in a row, whose number this is.
pub(crate) async fn mark_failed(
    tx: &mut TenantTx,
    origin: &Origin,
    counts: bool,
    of_user: bool,
    now: DateTime<Utc>,
) -> Result<Option<i32>, Error> {
    let in_a_row = sqlx::query_scalar!(
        "-- attempt.mark_failed
        with attempt as (
            update identity.attempts
            set begun = coalesce(
                    begun[:array_position(begun, $3) - 1] || begun[array_position(begun, $3) + 1:], begun
                ),
                failures = failures + $4::boolean::int,
                waits_until = case
                    when $4 then greatest(
                        waits_until,
                        $5::timestamptz + make_interval(secs => ($6::int[])[least(failures + 1, cardinality($6))])
                    )
                    else waits_until
                end,
                expires_at = case
                    when $4 and failures = 0 then $5::timestamptz + interval '24 hours'
                    else expires_at
                end
            where account_key = $1 and source = $2
        )
        insert into identity.failures as known (account_key, in_a_row, last_failed_at, of_user)
        select $1, 1, $5, $7::boolean where $4
        on conflict (account_key) do update
        set in_a_row = known.in_a_row + 1,
            last_failed_at = excluded.last_failed_at,
            of_user = known.of_user or excluded.of_user
        returning in_a_row",
        origin.account.current.as_slice(),
        origin.source,
        origin.since,
        counts,
        now,
        WAITS.as_slice(),
        of_user
    )
    .fetch_optional(tx.connection())
    .await?;
    Ok(in_a_row)
}

/// The password was right: nobody waits there any longer, and the row of failures ends, unless it locks the account. Then
/// it only counts from where the account was logged in to lately. Failures from this address still count for the day.
///
/// Looks at the lock once more, so that no more than a hundred guesses are ever believed, however many are under way.
pub(crate) async fn mark_succeeded(
    tx: &mut TenantTx,
    origin: &Origin,
    trusted: bool,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let succeeded = sqlx::query_scalar!(
        r#"-- attempt.mark_succeeded
        with lock as (select from identity.failures where account_key = $1 and in_a_row >= $5 and not $6::boolean),
        attempt as (
            update identity.attempts
            set begun = coalesce(
                    begun[:array_position(begun, $3) - 1] || begun[array_position(begun, $3) + 1:], begun
                ),
                waits_until = $4,
                last_success_at = $4
            where account_key = $1 and source = $2 and not exists (select from lock)
        ),
        failures as (delete from identity.failures where account_key = $1 and in_a_row < $5)
        select not exists (select from lock) as "succeeded!""#,
        origin.account.current.as_slice(),
        origin.source,
        origin.since,
        now,
        LOCKOUT_THRESHOLD,
        trusted
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(succeeded)
}

/// Nothing came of it, for no fault of whoever tried: it leaves nothing behind.
pub(crate) async fn release(database: &Database, origin: &Origin) -> Result<(), Error> {
    sqlx::query!(
        "-- attempt.release
        update identity.attempts
        set begun = coalesce(
            begun[:array_position(begun, $3) - 1] || begun[array_position(begun, $3) + 1:], begun
        )
        where account_key = $1 and source = $2",
        origin.account.current.as_slice(),
        origin.source,
        origin.since
    )
    .execute(database.pool())
    .await?;
    Ok(())
}
