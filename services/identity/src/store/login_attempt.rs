//! Login throttling. The tables have no row-level security: an account that does not exist belongs to no tenant.

use chrono::{DateTime, TimeDelta, Utc};
use database::{Database, Error, TenantTx};

use crate::domain::account::AccountKey;
use crate::domain::throttle::{LOCKOUT_THRESHOLD, SourceAttempts, TRUSTED_SOURCE_WINDOW, Throttle};

/// An account and a source address.
#[derive(Clone, Debug)]
pub(crate) struct ThrottleKey {
    pub(crate) account: AccountKey,
    pub(crate) source: String,
}

/// The version (`xmin`) of the stored row of a source; `None` if there is no row.
pub(crate) struct Revision(Option<String>);

/// The state of an account and a source, both locked.
pub(crate) struct Locked {
    pub(crate) throttle: Throttle,
    /// Whether the tenant exists and is not deleted.
    pub(crate) tenant_exists: bool,
}

/// Moves the rows of the previous key to the current key during a key rotation.
pub(crate) async fn carry_over(database: &Database, account: &AccountKey) -> Result<(), Error> {
    let Some(previous) = account.previous else { return Ok(()) };
    sqlx::query!(
        "-- login_attempt.carry_over
        with attempts as (
            update identity.login_attempts as old set account_key = $1
            where account_key = $2
                and not exists (
                    select from identity.login_attempts where account_key = $1 and source = old.source
                )
        )
        update identity.login_failures set account_key = $1
        where account_key = $2 and not exists (select from identity.login_failures where account_key = $1)",
        account.current.as_slice(),
        previous.as_slice()
    )
    .execute(database.pool())
    .await?;
    Ok(())
}

/// Loads the state without locks. [`replace_source`] detects a concurrent change of the source. The settlement checks the
/// consecutive failures again.
pub(crate) async fn load(
    database: &Database,
    key: &ThrottleKey,
    now: DateTime<Utc>,
) -> Result<(Throttle, Revision), Error> {
    let new = SourceAttempts::new(now);
    let row = sqlx::query!(
        r#"-- login_attempt.load
        select
            coalesce(failures, 0) as "failures!",
            coalesce(back_off_until, $3) as "back_off_until!",
            coalesce(window_ends_at, $4) as "window_ends_at!",
            coalesce(in_flight, '{}') as "in_flight!",
            coalesce(changes_in_flight, '{}') as "changes_in_flight!",
            last_success_at as "last_success_at?",
            coalesce(consecutive_failures, 0) as "consecutive_failures!",
            attempts.xmin::text as revision
        from (select) as one_row
        left join identity.login_attempts as attempts on attempts.account_key = $1 and attempts.source = $2
        left join identity.login_failures as failures on failures.account_key = $1"#,
        key.account.current.as_slice(),
        key.source,
        new.back_off_until,
        new.window_ends_at
    )
    .fetch_one(database.pool())
    .await?;
    let source = SourceAttempts {
        failures: row.failures,
        back_off_until: row.back_off_until,
        window_ends_at: row.window_ends_at,
        in_flight: row.in_flight,
        changes_in_flight: row.changes_in_flight,
        last_success_at: row.last_success_at,
    };
    Ok((Throttle { source, consecutive_failures: row.consecutive_failures }, Revision(row.revision)))
}

/// Saves the state of the source, if it has not changed since [`load`]. Returns whether it was saved. A row that was deleted
/// meanwhile is not restored.
pub(crate) async fn replace_source(
    database: &Database,
    key: &ThrottleKey,
    source: &SourceAttempts,
    Revision(revision): Revision,
) -> Result<bool, Error> {
    let is_saved = sqlx::query_scalar!(
        r#"-- login_attempt.replace_source
        with updated as (
            update identity.login_attempts
            set failures = $3, back_off_until = $4, window_ends_at = $5, in_flight = $6, last_success_at = $7,
                changes_in_flight = $8
            where account_key = $1 and source = $2 and xmin::text = $9
            returning true
        ), inserted as (
            insert into identity.login_attempts (
                account_key, source, failures, back_off_until, window_ends_at, in_flight, last_success_at,
                changes_in_flight
            )
            select $1, $2, $3, $4::timestamptz, $5::timestamptz, $6::timestamptz[], $7::timestamptz, $8::timestamptz[]
            where $9::text is null
            on conflict (account_key, source) do nothing
            returning true
        )
        select exists (table updated) or exists (table inserted) as "is_saved!""#,
        key.account.current.as_slice(),
        key.source,
        source.failures,
        source.back_off_until,
        source.window_ends_at,
        &source.in_flight,
        source.last_success_at,
        &source.changes_in_flight,
        revision
    )
    .fetch_one(database.pool())
    .await?;
    Ok(is_saved)
}

/// Loads the state, and whether the tenant exists. Locks the row of the account, then the row of the source. [`delete_failures`] locks them in the same order,
/// so that a login and a password reset of one account cannot deadlock. [`save`] must follow.
pub(crate) async fn load_locked(
    tx: &mut TenantTx,
    key: &ThrottleKey,
    account_exists: bool,
) -> Result<Locked, Error> {
    let new = SourceAttempts::new(tx.now());
    let tenant_id = tx.tenant_id().clone();
    let row = sqlx::query!(
        r#"-- login_attempt.load_locked
        with account as (
            insert into identity.login_failures as known
                (account_key, consecutive_failures, last_failed_at, account_exists)
            values ($1, 0, $3, $5)
            on conflict (account_key) do update
            set account_exists = known.account_exists or excluded.account_exists
            returning consecutive_failures
        )
        insert into identity.login_attempts
            (account_key, source, failures, back_off_until, window_ends_at, in_flight, changes_in_flight)
        select $1, $2, 0, $3, $4::timestamptz, '{}'::timestamptz[], '{}'::timestamptz[]
        from account
        on conflict (account_key, source) do update set source = excluded.source
        returning
            failures, back_off_until, window_ends_at, in_flight, changes_in_flight, last_success_at,
            (select consecutive_failures from account) as "consecutive_failures!",
            exists (
                select from identity.tenants where tenant_id = $6 and status <> 'deleted'
            ) as "tenant_exists!""#,
        key.account.current.as_slice(),
        key.source,
        new.back_off_until,
        new.window_ends_at,
        account_exists,
        tenant_id.as_str()
    )
    .fetch_one(tx.connection())
    .await?;
    let source = SourceAttempts {
        failures: row.failures,
        back_off_until: row.back_off_until,
        window_ends_at: row.window_ends_at,
        in_flight: row.in_flight,
        changes_in_flight: row.changes_in_flight,
        last_success_at: row.last_success_at,
    };
    let throttle = Throttle { source, consecutive_failures: row.consecutive_failures };
    Ok(Locked { throttle, tenant_exists: row.tenant_exists })
}

/// Saves the state after [`load_locked`]. An account without consecutive failures has no row.
pub(crate) async fn save(tx: &mut TenantTx, key: &ThrottleKey, throttle: &Throttle) -> Result<(), Error> {
    let Throttle { source, consecutive_failures } = throttle;
    let now = tx.now();
    sqlx::query!(
        "-- login_attempt.save
        with source as (
            update identity.login_attempts
            set failures = $3, back_off_until = $4, window_ends_at = $5, in_flight = $6, last_success_at = $7,
                changes_in_flight = $8
            where account_key = $1 and source = $2
        ), account as (
            update identity.login_failures
            set consecutive_failures = $9,
                last_failed_at = case when consecutive_failures < $9 then $10 else last_failed_at end
            where account_key = $1 and $9 > 0
        )
        delete from identity.login_failures where account_key = $1 and $9 = 0",
        key.account.current.as_slice(),
        key.source,
        source.failures,
        source.back_off_until,
        source.window_ends_at,
        &source.in_flight,
        source.last_success_at,
        &source.changes_in_flight,
        consecutive_failures,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Deletes the failures of an account from all sources. Sources with a recent login stay trusted: otherwise an attacker could
/// lock the account again before its owner logs in.
pub(crate) async fn delete_failures(tx: &mut TenantTx, account: &AccountKey) -> Result<(), Error> {
    let keys = [Some(account.current), account.previous];
    let keys: Vec<Vec<u8>> = keys.into_iter().flatten().map(Vec::from).collect();
    let now = tx.now();
    sqlx::query!(
        "-- login_attempt.delete_failures
        with untrusted as (
            delete from identity.login_attempts where account_key = any($1) and last_success_at is null
        ),
        trusted as (
            update identity.login_attempts set failures = 0, back_off_until = $2
            where account_key = any($1) and last_success_at is not null
        )
        delete from identity.login_failures where account_key = any($1)",
        &keys,
        now
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Deletes expired rows, at most `limit` per table. Returns the larger of the two numbers.
///
/// Consecutive failures expire 30 days after the last one, and those of an account that does not exist after a day: a client can
/// name any number of them. A lockout of an account that exists does not expire.
pub(crate) async fn delete_before(database: &Database, now: DateTime<Utc>, limit: i64) -> Result<i64, Error> {
    let deleted = sqlx::query_scalar!(
        r#"-- login_attempt.delete_before
        with attempts as (
            delete from identity.login_attempts where ctid = any(array(
                select ctid from identity.login_attempts
                where window_ends_at <= $1 and (last_success_at is null or last_success_at <= $2)
                limit $5
                for update skip locked
            ))
            returning 1
        ),
        failures as (
            delete from identity.login_failures where ctid = any(array(
                select ctid from identity.login_failures
                where last_failed_at <= $3 and consecutive_failures < $4
                    or last_failed_at <= $6 and not account_exists
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
        limit,
        now - TimeDelta::days(1)
    )
    .fetch_one(database.pool())
    .await?;
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use testkit::TestDatabase;

    use super::*;
    use crate::domain::throttle::Purpose;

    #[tokio::test]
    async fn a_state_that_was_changed_or_deleted_since_it_was_loaded_is_not_replaced() {
        let test = TestDatabase::create().await.unwrap();
        let database = test.pool("svc_identity").unwrap();
        let account = AccountKey { current: [7; 32], previous: None };
        let key = ThrottleKey { account, source: "192.0.2.1".to_owned() };
        let now = DateTime::UNIX_EPOCH;
        let admit = async || {
            let (mut throttle, revision) = load(&database, &key, now).await.unwrap();
            throttle.admit(Purpose::LogIn, now).unwrap();
            (throttle.source, revision)
        };
        for rows in ["none", "one"] {
            let ((first, before_first), (second, before_second)) = (admit().await, admit().await);
            assert!(replace_source(&database, &key, &first, before_first).await.unwrap(), "{rows}");
            assert!(!replace_source(&database, &key, &second, before_second).await.unwrap(), "{rows}");
        }
        assert_eq!(load(&database, &key, now).await.unwrap().0.source.in_flight.len(), 2);

        let (source, revision) = admit().await;
        let mut superuser = test.superuser().await.unwrap();
        sqlx::query("delete from identity.login_attempts").execute(&mut superuser).await.unwrap();
        assert!(!replace_source(&database, &key, &source, revision).await.unwrap());
        assert_eq!(load(&database, &key, now).await.unwrap().0.source, SourceAttempts::new(now));
    }
}
