//! Login throttling. The tables have no row-level security: an account that does not exist belongs to no tenant.

use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::SecondFactorPolicy;
use contract::internal::{SubjectRecord, TenantRecord};
use contract::{Role, TenantStatus, UserStatus};
use database::{Database, Error, TenantCall, TenantTx};
use hashing::PasswordDigest;
use tenancy::{SessionId, UserId};

use super::tenant;
use crate::domain::account::{Account, AccountKey, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::throttle::{LOCKOUT_THRESHOLD, SourceAttempts, TRUSTED_SOURCE_WINDOW, Throttle};

/// An account and a source address.
#[derive(Clone, Debug)]
pub(crate) struct ThrottleKey {
    pub(crate) account: AccountKey,
    pub(crate) source: String,
}

/// The stored state of an account and a source.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) throttle: Throttle,
    /// The version (`xmin`) of the row of the attempts; `None` if there is no row.
    version: Option<String>,
}

/// A started attempt.
pub(crate) struct Started {
    /// The state with the attempt.
    pub(crate) stored: Stored,
    /// Whether the tenant exists and is not deleted.
    pub(crate) tenant_exists: bool,
    /// The account that the attempt is for, if it exists.
    pub(crate) account: Option<Account>,
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

/// Loads the state without locks. [`start`] and [`settle`] change nothing if another change has been saved meanwhile.
pub(crate) async fn load(
    database: &Database,
    key: &ThrottleKey,
    now: DateTime<Utc>,
) -> Result<Stored, Error> {
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
            attempts.xmin::text as version
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
    let throttle = Throttle { source, consecutive_failures: row.consecutive_failures };
    Ok(Stored { throttle, version: row.version })
}

/// Saves the state with an admitted attempt, and finds the account that it is for. Returns `None` if the attempts of the source have
/// changed since they were loaded.
pub(crate) async fn start(
    database: &Database,
    key: &ThrottleKey,
    Stored { throttle, version }: Stored,
    account: AccountRef<'_>,
) -> Result<Option<Started>, Error> {
    let (tenant_id, email, user_id) = match account {
        AccountRef::Email(tenant_id, email) => (tenant_id, Some(email.as_str()), None),
        AccountRef::User(tenant_id, user_id) => (tenant_id, None, Some(user_id.0)),
    };
    let source = &throttle.source;
    let row = sqlx::query!(
        r#"-- login_attempt.start
        select
            saved.version,
            found.tenant_version is not null as "tenant_exists!",
            found.user_id as "user_id?: UserId", found.role as "role?: Role", found.status as "status?: UserStatus",
            found.password_digest as "password_digest?: PasswordDigest", found.credential_version as "credential_version?",
            found.kept_session_id as "kept_session_id?: SessionId", found.api_key_version as "api_key_version?",
            found.user_version as "user_version?", found.tenant_status as "tenant_status?: TenantStatus",
            found.session_version as "session_version?", found.events_per_second as "events_per_second?",
            found.bytes_per_second as "bytes_per_second?", found.tenant_version as "tenant_version?",
            found.email_key as "email_key?", found.has_factor as "has_factor?",
            found.second_factor as "second_factor?: SecondFactorPolicy", found.passkey_login as "passkey_login?"
        from identity.save_attempts(row($1, $2, $3, $4, $5, $6, $7, $8)::identity.source_attempts, $9) as saved (version)
        left join identity.find_account($10, $11, $12) as found on true"#,
        key.account.current.as_slice(),
        key.source,
        source.failures,
        source.back_off_until,
        source.window_ends_at,
        &source.in_flight,
        &source.changes_in_flight,
        source.last_success_at,
        version,
        tenant_id.as_str(),
        email,
        user_id
    )
    .fetch_one(database.pool())
    .await?;
    if row.version.is_none() {
        return Ok(None);
    }
    let stored = Stored { throttle, version: row.version };
    let quota = tenant::quota(row.events_per_second, row.bytes_per_second)?;
    let account = || {
        let subject = SubjectRecord {
            user_id: row.user_id?,
            tenant_id: tenant_id.clone(),
            role: row.role?,
            status: row.status?,
            credential_version: row.credential_version?,
            kept_session_id: row.kept_session_id,
            api_key_version: row.api_key_version?,
            has_factor: row.has_factor?,
            is_deleted: false,
            version: row.user_version?,
        };
        let tenant = TenantRecord {
            tenant_id: tenant_id.clone(),
            status: row.tenant_status?,
            session_version: row.session_version?,
            quota,
            second_factor: row.second_factor?,
            is_deleted: false,
            version: row.tenant_version?,
        };
        let (email, passkey_login) = (EmailKey::from_stored(row.email_key?), row.passkey_login?);
        Some(Account { subject, tenant, email, passkey_login, password_digest: row.password_digest })
    };
    Ok(Some(Started { stored, tenant_exists: row.tenant_exists, account: account() }))
}

/// Saves the state after an attempt, with the messages of the call. `user_id` is the user of the account when the attempt was admitted.
/// Returns false without a change if the stored state is not the one before.
pub(crate) async fn settle(
    call: TenantCall,
    key: &ThrottleKey,
    before: &Stored,
    after: &Throttle,
    user_id: Option<UserId>,
) -> Result<bool, Error> {
    let (tenant_id, now, source) = (call.tenant_id().clone(), call.now(), &after.source);
    let settled = call.run(async |pool, messages| {
        let settled = sqlx::query_scalar!(
            r#"-- login_attempt.settle
            select identity.settle_attempt(
                $1, $2, row($3, $4, $5, $6, $7, $8, $9, $10)::identity.source_attempts, $11, $12, $13, $14, $15
            ) as "settled!""#,
            tenant_id.as_str(),
            now,
            key.account.current.as_slice(),
            key.source,
            source.failures,
            source.back_off_until,
            source.window_ends_at,
            &source.in_flight,
            &source.changes_in_flight,
            source.last_success_at,
            before.version,
            before.throttle.consecutive_failures,
            after.consecutive_failures,
            user_id.map(|user_id| user_id.0),
            messages
        );
        Ok(settled.fetch_one(pool).await?.then_some(()))
    });
    Ok(settled.await?.is_some())
}

/// Deletes the failures of an account from all sources. Sources with a recent login stay trusted: otherwise an attacker could
/// lock the account again before its owner logs in. Returns whether the account was locked.
pub(crate) async fn delete_failures(tx: &mut TenantTx, account: &AccountKey) -> Result<bool, Error> {
    let (keys, now): (Vec<_>, _) = (account.stored().collect(), tx.now());
    let locked = sqlx::query_scalar!(
        r#"-- login_attempt.delete_failures
        with untrusted as (
            delete from identity.login_attempts where account_key = any($1) and last_success_at is null
        ),
        trusted as (
            update identity.login_attempts set failures = 0, back_off_until = $2
            where account_key = any($1) and last_success_at is not null
        ),
        failures as (
            delete from identity.login_failures where account_key = any($1) returning consecutive_failures
        )
        select coalesce(max(consecutive_failures) >= $3, false) as "locked!" from failures"#,
        &keys,
        now,
        LOCKOUT_THRESHOLD
    );
    Ok(locked.fetch_one(tx.connection()).await?)
}

/// Returns the keys of those accounts that are locked.
pub(crate) async fn list_locked(tx: &mut TenantTx, accounts: &[AccountKey]) -> Result<Vec<Vec<u8>>, Error> {
    let keys: Vec<_> = accounts.iter().flat_map(AccountKey::stored).collect();
    let locked = sqlx::query_scalar!(
        "-- login_attempt.list_locked
        select account_key from identity.login_failures where account_key = any($1) and consecutive_failures >= $2",
        &keys,
        LOCKOUT_THRESHOLD
    );
    Ok(locked.fetch_all(tx.connection()).await?)
}

/// Deletes expired rows, at most `limit` per table. Returns the larger of the two numbers.
///
/// Consecutive failures expire 30 days after the last one, or a day after it if the account has no password: a client can name
/// any number of addresses. A lockout of an account with a password does not expire.
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
                    or last_failed_at <= $6 and not has_password
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
    use tenancy::{Actor, TenantId};
    use testkit::TestDatabase;

    use super::*;
    use crate::domain::throttle::{Outcome, Permit, Purpose};
    use crate::message::Message;

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    struct Attempts {
        test: TestDatabase,
        database: Database,
        tenant_id: TenantId,
        key: ThrottleKey,
    }

    impl Attempts {
        async fn new() -> Self {
            let test = TestDatabase::create().await.unwrap();
            let database = test.pool("svc_identity").unwrap();
            let account = AccountKey { current: [7; 32], previous: None };
            let key = ThrottleKey { account, source: "192.0.2.1".to_owned() };
            Self { test, database, tenant_id: "acme".parse().unwrap(), key }
        }

        async fn load(&self) -> Stored {
            load(&self.database, &self.key, NOW).await.unwrap()
        }

        async fn start(&self, mut stored: Stored) -> Option<(Stored, Permit)> {
            let permit = stored.throttle.admit(Purpose::LogIn, NOW).unwrap();
            let account = AccountRef::User(&self.tenant_id, UserId::generate());
            let started = start(&self.database, &self.key, stored, account).await.unwrap()?;
            Some((started.stored, permit))
        }

        /// Settles an attempt that sends a message. Returns whether it was saved.
        async fn settle(&self, before: &Stored, permit: &Permit, outcome: Outcome) -> bool {
            let mut after = before.throttle.clone();
            after.settle(permit, outcome, NOW);
            let mut call = self.database.call(&self.tenant_id, Actor::Anonymous, NOW);
            call.send(&Message::PushTenantStatus);
            settle(call, &self.key, before, &after, Some(UserId::generate())).await.unwrap()
        }

        /// Settles a failure, which waits for a lock of the account that `lock` takes and `release` ends.
        async fn settle_while_locked(
            &self,
            before: &Stored,
            permit: &Permit,
            lock: &'static str,
            release: &'static str,
        ) -> bool {
            let mut other = self.test.superuser().await.unwrap();
            sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
            let release = async {
                let mut observer = self.test.superuser().await.unwrap();
                testkit::wait_until("the settlement waits for the account", async || {
                    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
                    let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut observer).await.unwrap();
                    (waiting == 1).then_some(())
                })
                .await;
                sqlx::raw_sql(release).execute(&mut other).await.unwrap();
            };
            tokio::join!(self.settle(before, permit, Outcome::Failure), release).0
        }

        async fn run(&self, statement: &'static str) {
            sqlx::query(statement).execute(&mut self.test.superuser().await.unwrap()).await.unwrap();
        }

        async fn set_failures(&self, failures: i32) {
            let mut superuser = self.test.superuser().await.unwrap();
            let delete = sqlx::query("delete from identity.login_failures");
            delete.execute(&mut superuser).await.unwrap();
            let insert = "insert into identity.login_failures select $1, $2, now(), true where $2 > 0";
            let insert = sqlx::query(insert).bind(self.key.account.current.as_slice()).bind(failures);
            insert.execute(&mut superuser).await.unwrap();
        }

        async fn failure_rows(&self) -> i64 {
            let rows = sqlx::query_scalar("select count(*) from identity.login_failures");
            rows.fetch_one(&mut self.test.superuser().await.unwrap()).await.unwrap()
        }

        async fn messages(&self) -> Vec<String> {
            let kinds = sqlx::query_scalar(
                "select kind from identity.outbox where tenant_id = 'acme' order by outbox_id",
            );
            kinds.fetch_all(&mut self.test.superuser().await.unwrap()).await.unwrap()
        }
    }

    #[tokio::test]
    async fn a_state_that_was_changed_or_deleted_since_it_was_loaded_is_not_replaced() {
        let attempts = Attempts::new().await;
        for rows in ["none", "one"] {
            let (first, second) = (attempts.load().await, attempts.load().await);
            assert!(attempts.start(first).await.is_some(), "{rows}");
            assert!(attempts.start(second).await.is_none(), "{rows}");
        }
        let stored = attempts.load().await;
        assert_eq!(stored.throttle.source.in_flight.len(), 2);

        attempts.run("delete from identity.login_attempts").await;
        assert!(attempts.start(stored).await.is_none());
        assert_eq!(attempts.load().await.throttle.source, SourceAttempts::new(NOW));
    }

    #[tokio::test]
    async fn a_result_is_saved_once_with_its_messages_unless_its_state_has_changed() {
        let attempts = Attempts::new().await;
        for outcome in [Outcome::Failure, Outcome::Success, Outcome::Objection, Outcome::Unverified] {
            attempts.run("delete from identity.outbox").await;
            let (stored, permit) = attempts.start(attempts.load().await).await.unwrap();
            assert!(attempts.settle(&stored, &permit, outcome).await, "{outcome:?}");
            let settled = attempts.load().await.throttle;
            assert!(settled.source.in_flight.is_empty());
            assert!(!attempts.settle(&stored, &permit, outcome).await, "{outcome:?}: the source has changed");

            let (stored, permit) = attempts.start(attempts.load().await).await.unwrap();
            let failures = stored.throttle.consecutive_failures;
            for other in [failures + 1, failures + 2] {
                attempts.set_failures(other).await;
                let settled = attempts.settle(&stored, &permit, outcome).await;
                assert!(!settled, "{outcome:?}: the account has {other} failures instead of {failures}");
            }
            assert_eq!(attempts.load().await.throttle.source, stored.throttle.source);
            assert_eq!(attempts.messages().await, ["push_tenant_status"]);
            attempts.run("delete from identity.login_failures").await;
            attempts.run("delete from identity.login_attempts").await;
        }
    }

    #[tokio::test]
    async fn failures_of_a_user_who_no_longer_exists_are_deleted_after_a_day() {
        let attempts = Attempts::new().await;
        let (stored, permit) = attempts.start(attempts.load().await).await.unwrap();
        assert!(attempts.settle(&stored, &permit, Outcome::Failure).await);
        for (day, rows) in [(0, 1), (1, 0)] {
            delete_before(&attempts.database, NOW + TimeDelta::days(day), 10).await.unwrap();
            assert_eq!(attempts.failure_rows().await, rows, "after {day} days");
        }
    }

    #[tokio::test]
    async fn the_saved_state_is_the_one_that_the_domain_computed() {
        let attempts = Attempts::new().await;
        let mut expected = attempts.load().await.throttle;
        for (failures, outcome) in [
            (0, Outcome::Success),
            (0, Outcome::Failure),
            (1, Outcome::Failure),
            (2, Outcome::Objection),
            (2, Outcome::Success),
            (99, Outcome::Failure),
            (100, Outcome::Failure),
            (101, Outcome::Success),
        ] {
            attempts.set_failures(failures).await;
            let (stored, permit) = attempts.start(attempts.load().await).await.unwrap();
            expected.consecutive_failures = failures;
            let same_permit = expected.admit(Purpose::LogIn, NOW).unwrap();
            expected.settle(&same_permit, outcome, NOW);
            assert!(attempts.settle(&stored, &permit, outcome).await);
            assert_eq!(attempts.load().await.throttle, expected, "{outcome:?} after {failures} failures");
            let rows = i64::from(expected.consecutive_failures > 0);
            assert_eq!(attempts.failure_rows().await, rows);
        }
    }

    #[tokio::test]
    async fn a_first_failure_of_another_source_that_is_saved_meanwhile_is_not_overwritten() {
        let attempts = Attempts::new().await;
        let (stored, permit) = attempts.start(attempts.load().await).await.unwrap();
        let insert = "begin; insert into identity.login_failures select account_key, 1, now(), true from identity.login_attempts";
        let settled = attempts.settle_while_locked(&stored, &permit, insert, "commit").await;
        assert!(!settled);
        assert_eq!(attempts.load().await.throttle.consecutive_failures, 1);
        assert!(attempts.messages().await.is_empty());
    }

    #[tokio::test]
    async fn neither_row_is_saved_if_the_source_changes_while_the_settlement_waits_for_the_account() {
        let attempts = Attempts::new().await;
        attempts.set_failures(7).await;
        let (stored, permit) = attempts.start(attempts.load().await).await.unwrap();
        let lock = "begin; select from identity.login_failures for update";
        let change = "update identity.login_attempts set failures = 3; commit";
        assert!(!attempts.settle_while_locked(&stored, &permit, lock, change).await);
        let Throttle { source, consecutive_failures } = attempts.load().await.throttle;
        assert_eq!((source.failures, consecutive_failures), (3, 7));
        assert!(attempts.messages().await.is_empty());
    }
}
