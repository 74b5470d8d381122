//! Attempts at a password, for login and password change.
//!
//! Unknown tenant, unknown address, invited, disabled, suspended, locked, backing off, invalid and wrong password take the
//! same path: one start, one verification, one settlement, one response. No step reveals whether the account exists.
//!
//! [`App::begin_attempt`], [`App::verify`] and [`App::settle`] are separate steps. Between the last two, the use case can object to a
//! correct password. [`App::resume`] takes the place of `verify` in the second step of a login with a second factor, and in a login with a
//! passkey alone.

use std::net::IpAddr;
use std::time::Duration;

use audit::{AuditEvent, EventName, FailedAttempt};
use contract::ProblemKind;
use database::{Error, TenantCall};
use hashing::{Argon2Settings, Overloaded, Password, Requester, StoredPassword};
use ratelimit::{RateLimitError, source};
use service::{Problem, chain};
use tenancy::{Actor, TenantId, UserId};
use tracing::field::display;

use super::passwords::{open_lane, reserved_lane};
use super::{App, Work};
use crate::domain::account::{Account, AccountKey, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::domain::throttle::{LOCKOUT_THRESHOLD, Outcome, Permit, Purpose};
use crate::store::login_attempt::{self, Started, ThrottleKey};

/// The label `limit` of the throttling in metrics.
const LIMIT: &str = "account";

/// `Retry-After` when too many attempts are in flight.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often a change of the state is repeated because other attempts changed it meanwhile. Each of them has made progress, and
/// only as many attempts as there are hash workers end at the same time, so more repetitions are a defect or an overload.
const MAX_REPETITIONS: usize = 100;

/// An attempt in flight. [`App::verify`] ends it, or passes it on as [`Verified`].
pub(crate) struct Attempt {
    tenant_id: TenantId,
    key: ThrottleKey,
    purpose: Purpose,
    address: IpAddr,
    /// The e-mail address from the request, for the audit.
    email: Option<String>,
    permit: Permit,
    started: Started,
}

/// An attempt with the correct password, at an account that can log in. Nothing is recorded before [`App::settle`]: until then,
/// the use case can object.
#[must_use = "the attempt stays in flight until it is settled"]
pub(crate) struct Verified {
    attempt: Attempt,
    account: Account,
}

/// Why an attempt is not started, or its outcome not recorded.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("too many attempts are in flight")]
    Limited,
    #[error("the hash queue has no place")]
    Shed,
    #[error("other attempts changed the state of the account {MAX_REPETITIONS} times")]
    Contended,
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<AttemptError> for Problem {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Limited => RateLimitError::Limited { retry_after: RETRY_AFTER }.into(),
            AttemptError::Shed => ProblemKind::Overloaded.into(),
            AttemptError::Contended => Self::new(ProblemKind::Overloaded).caused_by(error),
            AttemptError::Database(error @ database::Error::OutboxFull(_)) => error.into(),
            AttemptError::Database(error) => RateLimitError::Unavailable(error).into(),
        }
    }
}

impl App {
    /// Starts an attempt at an account, which is found by `target`. `account` is the name that attempts are counted under.
    ///
    /// # Errors
    /// 429 if too many attempts are in flight; 503 if the hash queue is full or the attempt cannot be counted.
    pub(super) async fn begin_attempt(
        &self,
        account: AccountRef<'_>,
        target: AccountRef<'_>,
        address: IpAddr,
        purpose: Purpose,
    ) -> Result<Attempt, Problem> {
        let tenant_id = account.tenant_id().clone();
        let key = ThrottleKey {
            account: self.config.limiter_keys.get().account(&account),
            source: source(address).to_string(),
        };
        let decisions = self.limiter.metrics();
        let started = self.start(target, &key, address, purpose).await;
        let (permit, started) = started.inspect_err(|error| match error {
            AttemptError::Limited => decisions.rejected(LIMIT),
            AttemptError::Database(_) => decisions.unavailable(LIMIT),
            AttemptError::Shed | AttemptError::Contended => {}
        })?;
        if permit.is_allowed() {
            decisions.allowed(LIMIT);
        } else {
            decisions.rejected(LIMIT);
        }
        let email = match account {
            // Postgres does not store every control character.
            AccountRef::Email(_, email) => {
                Some(email.as_str().to_owned()).filter(|email| !email.contains(char::is_control))
            }
            AccountRef::User(..) => None,
        };
        Ok(Attempt { tenant_id, key, purpose, address, email, permit, started })
    }

    async fn start(
        &self,
        target: AccountRef<'_>,
        key: &ThrottleKey,
        address: IpAddr,
        purpose: Purpose,
    ) -> Result<(Permit, Started), AttemptError> {
        login_attempt::carry_over(&self.database, &key.account).await?;
        for _ in 0..MAX_REPETITIONS {
            let now = self.clock.now();
            let mut stored = login_attempt::load(&self.database, key, now).await?;
            let permit = stored.throttle.admit(purpose, now).ok_or(AttemptError::Limited)?;
            if purpose.verifies_password() {
                let requester = requester(&permit, address, target.tenant_id(), &key.account);
                self.hashes.check_capacity(&requester).map_err(|Overloaded| AttemptError::Shed)?;
            }
            if let Some(started) = login_attempt::start(&self.database, key, stored, target).await? {
                return Ok((permit, started));
            }
        }
        Err(AttemptError::Contended)
    }

    /// Verifies a password against an account, or at the cost of a stored password against a dummy hash. A wrong password, and
    /// an account that cannot log in, are recorded as a failure.
    ///
    /// # Errors
    /// 401 `login_failed`; 503 if the password was not verified or the failure was not recorded. Then the attempt does not count.
    pub(super) async fn verify(&self, attempt: Attempt, raw_password: &str) -> Result<Verified, Problem> {
        let Ok(matches) = self.matches(&attempt, raw_password).await else {
            self.release(&attempt).await;
            return Err(ProblemKind::Overloaded.into());
        };
        let is_correct = matches && attempt.permit.is_allowed();
        let account = attempt.started.account.clone();
        if let Some(account) = account.filter(|account| is_correct && account.may_log_in()) {
            return Ok(Verified { attempt, account });
        }
        self.record(&attempt, Outcome::Failure).await?;
        Err(ProblemKind::LoginFailed.into())
    }

    /// Continues a login after an earlier attempt has verified the password, or after the signature of a passkey. The attempt does not
    /// count if the account cannot log in, or `permits` rejects it.
    ///
    /// # Errors
    /// 401 `login_failed`; 503 if the end of the attempt was not recorded.
    pub(super) async fn resume(
        &self,
        attempt: Attempt,
        permits: impl FnOnce(&Account) -> bool,
    ) -> Result<Verified, Problem> {
        let account = attempt.started.account.clone().filter(Account::may_log_in);
        if let Some(account) = account.filter(|account| attempt.permit.is_allowed() && permits(account)) {
            return Ok(Verified { attempt, account });
        }
        self.record(&attempt, Outcome::Rejected).await?;
        Err(ProblemKind::LoginFailed.into())
    }

    /// Returns whether the password is the one of the account.
    async fn matches(&self, attempt: &Attempt, raw_password: &str) -> Result<bool, Overloaded> {
        let prepared = password::prepare(raw_password);
        let digest = attempt.started.account.as_ref().and_then(|account| account.password_digest.clone());
        let stored = digest
            .map_or_else(|| StoredPassword::Missing(self.cost_of_missing(attempt)), StoredPassword::Digest);
        // Invalid input is hashed as the empty password.
        let is_valid = prepared.is_some();
        let requester = requester(&attempt.permit, attempt.address, &attempt.tenant_id, &attempt.key.account);
        let prepared = prepared.unwrap_or_else(|| Password::new(""));
        Ok(self.hashes.verify(requester, prepared, stored).await? && is_valid)
    }

    /// Ends a verified attempt. `decision` is what the rest of the use case decided. If it is an error, the attempt is no
    /// success and no failure, and the error is returned.
    ///
    /// # Errors
    /// The error of `decision`; 401 `login_failed` if the account was locked while the attempt was in flight; 503 if the
    /// outcome was not recorded.
    pub(super) async fn settle<T>(
        &self,
        verified: Verified,
        decision: Result<T, Problem>,
    ) -> Result<(Account, T), Problem> {
        let Verified { attempt, account } = verified;
        let outcome = if decision.is_ok() { Outcome::Success } else { Outcome::Objection };
        match self.record(&attempt, outcome).await? {
            Outcome::Failure => Err(ProblemKind::LoginFailed.into()),
            _ => Ok((account, decision?)),
        }
    }

    /// Ends a verified attempt that a later request continues: it is no success and no failure.
    ///
    /// # Errors
    /// 401 `login_failed` if the account was locked while the attempt was in flight; 503 if the end was not recorded.
    pub(super) async fn postpone(&self, verified: Verified) -> Result<(), Problem> {
        match self.record(&verified.attempt, Outcome::Objection).await? {
            Outcome::Failure => Err(ProblemKind::LoginFailed.into()),
            _ => Ok(()),
        }
    }

    /// Records an outcome, or releases the attempt if that fails. Returns the outcome that counts.
    async fn record(&self, attempt: &Attempt, outcome: Outcome) -> Result<Outcome, AttemptError> {
        let recorded = self.try_record(attempt, outcome).await;
        if recorded.is_err() {
            self.release(attempt).await;
        }
        recorded
    }

    /// Ends an attempt that does not count.
    async fn release(&self, attempt: &Attempt) {
        if let Err(error) = self.try_record(attempt, Outcome::Unverified).await {
            let tenant_id = &attempt.tenant_id;
            tracing::warn!(error = chain(&error), %tenant_id, "failed to release login attempt; it expires after 30 s");
        }
    }

    /// Saves the state that the throttle computes, with its audit events, in the same way for every account.
    async fn try_record(&self, attempt: &Attempt, outcome: Outcome) -> Result<Outcome, AttemptError> {
        let user_id = attempt.user_id();
        let mut before = attempt.started.stored.clone();
        for _ in 0..MAX_REPETITIONS {
            let now = self.clock.now();
            let mut after = before.throttle.clone();
            let counted = after.settle(&attempt.permit, outcome, now);
            let is_locking = after.is_locked() && !before.throttle.is_locked();
            let mut call = self.database.call(&attempt.tenant_id, Actor::Anonymous, now);
            audit_outcome(&mut call, attempt, counted, is_locking);
            if login_attempt::settle(call, &attempt.key, &before, &after, user_id).await? {
                if is_locking {
                    let (tenant_id, user_id) = (&attempt.tenant_id, user_id.map(display));
                    tracing::warn!(%tenant_id, user_id, "account locked after {LOCKOUT_THRESHOLD} consecutive failures");
                }
                return Ok(counted);
            }
            before = login_attempt::load(&self.database, &attempt.key, now).await?;
        }
        Err(AttemptError::Contended)
    }

    /// The Argon2 parameters for an account without a password: those of the stored passwords, once they are counted.
    fn cost_of_missing(&self, attempt: &Attempt) -> Argon2Settings {
        let cost = self.password_costs.borrow().for_missing(&attempt.key.account);
        cost.unwrap_or(*self.hashes.settings())
    }
}

/// Adds the audit events of an outcome. An objection and a successful password change have those of the use case.
fn audit_outcome(call: &mut TenantCall, attempt: &Attempt, outcome: Outcome, is_locking: bool) {
    let (tenant_exists, user_id) = (attempt.started.tenant_exists, attempt.user_id());
    let failed = FailedAttempt { tenant_exists, user_id, source: &attempt.key.source };
    match (outcome, attempt.purpose) {
        (Outcome::Success, Purpose::LogIn | Purpose::SecondFactor | Purpose::Passkey) => {
            let actor = user_id.map_or(Actor::Anonymous, |user_id| Actor::User { user_id });
            call.audit(attempt.event(EventName::AuthnLoginSuccess).by(actor));
        }
        (Outcome::Failure | Outcome::Rejected, Purpose::LogIn | Purpose::SecondFactor | Purpose::Passkey) => {
            call.audit_failure(failed, attempt.event(EventName::AuthnLoginFail));
        }
        (Outcome::Failure | Outcome::Rejected, Purpose::ChangePassword) => {
            call.audit_failure(failed, attempt.event(EventName::AuthnPasswordChangeFail));
        }
        (Outcome::Success | Outcome::Objection | Outcome::Unverified, _) => {}
    }
    if is_locking {
        let event = attempt.event(EventName::AuthnLoginLock).by(Actor::System);
        call.audit_failure(failed, event);
    }
}

/// The client of the hash of an attempt. While the queue is full, its lane reveals that a login to the account has recently
/// succeeded, but only to clients with the same source address as that login. All other steps are the same for every account.
fn requester(permit: &Permit, address: IpAddr, tenant_id: &TenantId, account: &AccountKey) -> Requester {
    if permit.uses_reserved_lane() { reserved_lane(address, tenant_id, account) } else { open_lane(address) }
}

impl Work<'_> {
    /// Deletes the counted failures of an account, from all sources. Its owner or an administrator has acted. Returns whether
    /// it was locked.
    pub(super) async fn delete_failures(&mut self, email: &EmailKey) -> Result<bool, Error> {
        let tenant_id = self.tenant_id().clone();
        let account = self.app.config.limiter_keys.get().account(&AccountRef::Email(&tenant_id, email));
        login_attempt::delete_failures(self, &account).await
    }
}

impl Verified {
    /// The account with the correct password.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }
}

impl Attempt {
    /// The user of the account, if it exists.
    fn user_id(&self) -> Option<UserId> {
        self.started.account.as_ref().map(|account| account.subject.user_id)
    }

    fn event(&self, name: EventName) -> AuditEvent {
        let (ip, email) = (Some(self.address), self.email.clone());
        AuditEvent { user_id: self.user_id(), ip, email, ..AuditEvent::new(name) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use database::Parts;
    use hashing::SystemEntropy;
    use service::Tasks;
    use service::clock::SystemClock;
    use service::config::{Environment, Variables as _};
    use service::telemetry::{Telemetry, TraceSettings};
    use testkit::{LIMITS_OFF, PASSWORD, TestDatabase};

    use super::*;
    use crate::config::Config;
    use crate::wiring;

    const EMAIL: &str = "ada@acme.example";
    const SECRET: &str = "a secret of thirty-two characters or more";
    /// A trigger that makes each change of the attempts fail as if another attempt had changed them.
    const CONTENTION: &str = "create function identity.skip() returns trigger language plpgsql as 'begin return null; end';
        create trigger skip before insert or update on identity.login_attempts for each row execute function identity.skip()";

    struct Fixture {
        test: TestDatabase,
        app: App,
    }

    impl Fixture {
        /// Creates the tenant `acme` with an active user.
        async fn new() -> Self {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let test = TestDatabase::create().await.unwrap();
            let environment = Environment::from_pairs(LIMITS_OFF).with([
                ("SVC_DATABASE_URL", test.url("svc_identity").as_str()),
                ("SVC_SESSION_URL", "http://127.0.0.1:1"),
                ("SVC_SERVICE_TOKEN", SECRET),
                ("SVC_LIMITER_KEY", SECRET),
                ("SVC_NATS_URL", "nats://127.0.0.1:1"),
                ("SVC_STREAM_MAX_BYTES", "64MiB"),
                ("SVC_ARGON2_TIME_COST", "1"),
                ("SVC_ARGON2_MEMORY_COST", "64"),
                ("SVC_HASH_WORKERS", "1"),
            ]);
            let parts = Parts {
                database: test.pool("svc_identity").unwrap(),
                clock: Arc::new(SystemClock),
                entropy: Arc::new(SystemEntropy),
                tasks: Tasks::default(),
                telemetry: Telemetry::start("test", &TraceSettings::default()).unwrap(),
            };
            let (database, clock, metrics) =
                (parts.database.clone(), Arc::clone(&parts.clock), parts.telemetry.metrics());
            let limiter = ratelimit::Limiter::new("identity", database, clock, metrics);
            let app = wiring::app(&Config::load(&environment).unwrap(), parts, limiter).unwrap();
            let digest =
                app.hashes.hash(open_lane([192, 0, 2, 1].into()), Password::new(PASSWORD)).await.unwrap();
            let fixture = Self { test, app };
            fixture
                .run(&format!(
                    "insert into identity.tenants (tenant_id, display_name, status, created_at, updated_at)
                    values ('acme', 'Acme', 'active', now(), now());
                    insert into identity.users (
                        user_id, tenant_id, email, email_key, email_skeleton, role, status, password_digest, created_at, updated_at
                    )
                    values (
                        gen_random_uuid(), 'acme', '{EMAIL}', '{EMAIL}', '{EMAIL}', 'member', 'active', '{}', now(), now()
                    )",
                    digest.as_str()
                ))
                .await;
            fixture
        }

        async fn run(&self, sql: &str) {
            let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
            sql.execute(&mut self.test.superuser().await.unwrap()).await.unwrap();
        }

        /// Begins an attempt from the `n`th address.
        async fn begin(&self, n: u8, purpose: Purpose) -> Result<Attempt, Problem> {
            let (tenant_id, email) = ("acme".parse().unwrap(), EmailKey::from_typed(EMAIL));
            let account = AccountRef::Email(&tenant_id, &email);
            self.app.begin_attempt(account, account, [192, 0, 2, n].into(), purpose).await
        }

        /// Logs in with a wrong password, and expects the problem.
        async fn fail(&self, n: u8, problem: ProblemKind) {
            let attempt = self.begin(n, Purpose::LogIn).await.unwrap();
            let verified = self.app.verify(attempt, "wrong-password-altogether").await;
            assert_eq!(verified.err().unwrap().kind(), problem);
        }

        /// Returns the recorded state: failures of the account and of the sources, trusted sources, attempts in flight.
        async fn recorded(&self) -> (i32, i64, i64, i64) {
            let select = sqlx::query_as(
                "select
                    coalesce((select max(consecutive_failures) from identity.login_failures), 0),
                    sum(failures), count(last_success_at), sum(cardinality(in_flight) + cardinality(changes_in_flight))
                from identity.login_attempts",
            );
            select.fetch_one(&mut self.test.superuser().await.unwrap()).await.unwrap()
        }

        /// The number of audit events with a name.
        async fn events(&self, name: &str) -> i64 {
            let select =
                sqlx::query_scalar("select count(*) from identity.outbox where payload ->> 'name' = $1");
            select.bind(name).fetch_one(&mut self.test.superuser().await.unwrap()).await.unwrap()
        }
    }

    #[tokio::test]
    async fn an_objection_to_a_correct_password_is_neither_a_success_nor_a_failure() {
        let fixture = Fixture::new().await;
        for _ in 0..4 {
            fixture.fail(1, ProblemKind::LoginFailed).await;
        }
        for purpose in [Purpose::LogIn, Purpose::ChangePassword] {
            let attempt = fixture.begin(1, purpose).await.unwrap();
            let verified = fixture.app.verify(attempt, PASSWORD).await.unwrap();
            assert_eq!(fixture.recorded().await, (4, 4, 0, 1), "nothing is recorded before the settlement");
            let objection = Err::<(), _>(ProblemKind::PasswordUnchanged.into());
            let settled = fixture.app.settle(verified, objection).await;
            assert_eq!(settled.err().unwrap().kind(), ProblemKind::PasswordUnchanged);
            assert_eq!(fixture.recorded().await, (4, 4, 0, 0));
            assert_eq!(fixture.events("authn_login_success").await, 0);
        }
        let attempt = fixture.begin(1, Purpose::LogIn).await.unwrap();
        let verified = fixture.app.verify(attempt, PASSWORD).await.unwrap();
        assert!(fixture.app.settle(verified, Ok(())).await.is_ok());
        assert_eq!(fixture.recorded().await, (0, 0, 1, 0));
        assert_eq!(fixture.events("authn_login_success").await, 1);
    }

    #[tokio::test]
    async fn an_objection_does_not_reveal_the_password_of_an_account_that_was_locked_meanwhile() {
        let fixture = Fixture::new().await;
        fixture.fail(1, ProblemKind::LoginFailed).await;
        let attempt = fixture.begin(2, Purpose::LogIn).await.unwrap();
        let verified = fixture.app.verify(attempt, PASSWORD).await.unwrap();
        fixture.run("update identity.login_failures set consecutive_failures = 100").await;
        let settled = fixture.app.settle(verified, Err::<(), _>(ProblemKind::PasswordUnchanged.into())).await;
        assert_eq!(settled.err().unwrap().kind(), ProblemKind::LoginFailed);
        assert_eq!(fixture.recorded().await, (101, 2, 0, 0));
    }

    #[tokio::test]
    async fn each_failure_of_a_concurrent_attack_from_many_addresses_counts_and_one_locks_the_account() {
        let fixture = Fixture::new().await;
        fixture.fail(1, ProblemKind::LoginFailed).await;
        fixture.run("update identity.login_failures set consecutive_failures = 80").await;
        let attempts = testkit::join_all((100..140).map(|n| fixture.begin(n, Purpose::LogIn))).await;
        let attempts: Vec<_> = attempts.into_iter().map(Result::unwrap).collect();
        let record = |attempt| fixture.app.record(attempt, Outcome::Failure);
        for outcome in testkit::join_all(attempts.iter().map(record)).await {
            assert_eq!(outcome.unwrap(), Outcome::Failure);
        }
        assert_eq!(fixture.recorded().await, (120, 41, 0, 0));
        assert_eq!(fixture.events("authn_login_lock").await, 1);
    }

    #[tokio::test]
    async fn an_attempt_that_other_attempts_change_without_end_gets_503_and_does_not_count() {
        let fixture = Fixture::new().await;
        fixture.fail(1, ProblemKind::LoginFailed).await;
        let attempt = fixture.begin(1, Purpose::LogIn).await.unwrap();
        fixture.run(CONTENTION).await;
        let verified = fixture.app.verify(attempt, "wrong-password-altogether").await;
        assert_eq!(verified.err().unwrap().kind(), ProblemKind::Overloaded);
        let started = fixture.begin(2, Purpose::LogIn).await;
        assert_eq!(started.err().unwrap().kind(), ProblemKind::Overloaded);
        assert_eq!(fixture.recorded().await, (1, 1, 0, 1), "the attempt is in flight for 30 s");
        assert_eq!(fixture.events("authn_login_fail").await, 1);
    }
}
