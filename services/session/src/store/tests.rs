//! Compares the rules that the schema repeats with those of the domain.

use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::{Quota, SecondFactorPolicy};
use contract::internal::{SubjectRecord, TenantRecord};
use contract::{Role, TenantStatus, UserStatus};
use database::TenantTx;
use proptest::prelude::*;
use tenancy::{Actor, KeyId, SessionId, TenantId, UserId};
use testkit::TestDatabase;
use uuid::Uuid;

use super::{account_status, api_key, session};
use crate::domain::api_key::KeyLifecycle;
use crate::domain::session::{TOUCH_INTERVAL, is_use_due};

const TENANT: &str = "acme";

/// A session and an API key of one user. Times are in units of half a minute.
#[derive(Clone, Copy, Debug)]
struct Case {
    user: UserStatus,
    tenant: TenantStatus,
    /// The stored versions of credentials and sessions, and those under which the session was created.
    current: (i64, i64),
    created_under: (i64, i64),
    is_kept: bool,
    last_used: i64,
    idle_expires: i64,
    /// From the end of the idle timeout to that of the absolute lifetime.
    rest: i64,
    inactive_since: Option<i64>,
    key_expires: i64,
    key_revoked: Option<i64>,
    key_used: Option<i64>,
    now: i64,
}

fn case() -> impl Strategy<Value = Case> {
    let time = || 0_i64..8;
    let maybe = || prop::option::weighted(0.3, 0_i64..8);
    let versions = || (1_i64..3, 1_i64..3);
    let account = (
        prop_oneof![3 => Just(UserStatus::Active), 1 => Just(UserStatus::Disabled), 1 => Just(UserStatus::Invited)],
        prop_oneof![3 => Just(TenantStatus::Active), 1 => Just(TenantStatus::Suspended)],
        versions(),
        versions(),
        any::<bool>(),
    );
    let session = (time(), time(), 0_i64..3, maybe());
    (account, session, (time(), maybe(), maybe()), time()).prop_map(|(account, session, key, now)| {
        let (user, tenant, current, created_under, is_kept) = account;
        let (last_used, idle_expires, rest, inactive_since) = session;
        let (key_expires, key_revoked, key_used) = key;
        Case {
            user,
            tenant,
            current,
            created_under,
            is_kept,
            last_used,
            idle_expires,
            rest,
            inactive_since,
            key_expires,
            key_revoked,
            key_used,
            now,
        }
    })
}

fn at(time: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(30 * time)
}

impl Case {
    /// Inserts the rows.
    async fn insert(&self, tx: &mut TenantTx, session_id: SessionId, user_id: UserId) {
        let tenant_id: TenantId = TENANT.parse().unwrap();
        let tenant = TenantRecord {
            tenant_id: tenant_id.clone(),
            status: self.tenant,
            session_version: self.current.1,
            quota: Quota::default(),
            second_factor: SecondFactorPolicy::Optional,
            is_deleted: false,
            version: 1,
        };
        let subject = SubjectRecord {
            user_id,
            tenant_id,
            role: Role::Member,
            status: self.user,
            credential_version: self.current.0,
            kept_session_id: self.is_kept.then_some(session_id),
            api_key_version: 1,
            has_factor: false,
            is_deleted: false,
            version: 1,
        };
        account_status::apply_tenant(tx, &tenant).await.unwrap();
        account_status::apply_subject(tx, &subject).await.unwrap();
        let insert = "insert into session.sessions (
                session_id, tenant_id, user_id, digest, method, amr, credential_version, session_version, created_at,
                last_seen_at, idle_seconds, idle_expires_at, expires_at, inactive_since
            )
            values ($1, $2, $3, sha256(''), 'password', '{pwd}', $4, $5, $6, $6, 60, $7, $8, $9)";
        let insert = sqlx::query(insert)
            .bind(session_id)
            .bind(TENANT)
            .bind(user_id)
            .bind(self.created_under.0)
            .bind(self.created_under.1)
            .bind(at(self.last_used))
            .bind(at(self.idle_expires))
            .bind(at(self.idle_expires + self.rest))
            .bind(self.inactive_since.map(at));
        insert.execute(tx.connection()).await.unwrap();
        let insert = "insert into session.api_keys (
                key_id, tenant_id, name, digest, scopes, source_ids, created_by, credential_version, created_at, expires_at,
                revoked_at
            )
            values ($1, $2, 'key', sha256(''), '{events:write}', '{}', $3, 1, $4, $4, $5)";
        let insert = sqlx::query(insert)
            .bind(KeyId::generate())
            .bind(TENANT)
            .bind(user_id)
            .bind(at(self.key_expires))
            .bind(self.key_revoked.map(at));
        insert.execute(tx.connection()).await.unwrap();
    }

    /// Compares what the statements find with what the domain decides.
    async fn compare(&self, tx: &mut TenantTx) {
        let (session_id, user_id, now) = (SessionId::generate(), UserId::generate(), tx.now());
        self.insert(tx, session_id, user_id).await;
        let account = account_status::find_for_update(tx, user_id).await.unwrap().unwrap();
        let found = session::find_for_update(tx, session_id).await.unwrap().unwrap().session;
        let is_valid = found.lifecycle.is_valid(now);

        let listed = session::list(tx, user_id, None, 10).await.unwrap();
        assert_eq!(!listed.is_empty(), found.is_active(&account, now), "listed: {self:?}");
        let count = "select session.count_valid_sessions($1)";
        let valid: i64 = sqlx::query_scalar(count).bind(now).fetch_one(tx.connection()).await.unwrap();
        assert_eq!(valid == 1, is_valid, "counted: {self:?}");
        let list = "select session_ids from session.list_expired_sessions($1, 10)";
        let expired: Option<Vec<Uuid>> =
            sqlx::query_scalar(list).bind(now).fetch_optional(tx.connection()).await.unwrap();
        let is_expired = found.lifecycle.inactive_since.is_none() && !is_valid;
        assert_eq!(expired.is_some(), is_expired, "swept: {self:?}");

        let key = KeyLifecycle { expires_at: at(self.key_expires), revoked_at: self.key_revoked.map(at) };
        let keys = api_key::list(tx, None, 10).await.unwrap();
        assert_eq!(!keys.is_empty(), key.is_valid(now), "listed key: {self:?}");
        let valid_keys = api_key::count_valid(tx).await.unwrap();
        assert_eq!(valid_keys == 1, key.is_valid(now), "counted key: {self:?}");

        for last_used_at in [Some(at(self.last_used)), self.key_used.map(at)] {
            let is_due: bool = sqlx::query_scalar("select session.is_use_due($1, $2, $3)")
                .bind(last_used_at)
                .bind(now)
                .bind(TOUCH_INTERVAL)
                .fetch_one(tx.connection())
                .await
                .unwrap();
            assert_eq!(is_due, is_use_due(last_used_at, now), "use of {last_used_at:?}: {self:?}");
        }

        // Last, because it revokes the session.
        let surplus = session::mark_surplus_revoked(tx, user_id, 0).await.unwrap();
        assert_eq!(!surplus.is_empty(), found.is_active(&account, now), "surplus: {self:?}");
    }
}

#[test]
fn statements_find_the_credentials_that_are_active_by_the_rules_of_the_domain() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = runtime.block_on(TestDatabase::create()).unwrap();
    let database = runtime.block_on(async { test.pool("svc_session") }).unwrap();
    let tenant_id = TENANT.parse().unwrap();
    proptest!(ProptestConfig::with_cases(400), |(case in case())| {
        runtime.block_on(async {
            // Never committed: the next case begins without rows.
            let mut tx = database.begin(&tenant_id, Actor::System, at(case.now)).await.unwrap();
            case.compare(&mut tx).await;
        });
    });
}

#[tokio::test]
async fn the_planner_replaces_the_calls_of_the_rules_by_their_queries() {
    let test = TestDatabase::create().await.unwrap();
    let database = test.pool("svc_session").unwrap();
    let tenant_id = TENANT.parse().unwrap();
    let mut tx = database.begin(&tenant_id, Actor::System, at(0)).await.unwrap();
    // The tables are empty.
    sqlx::query("set local enable_seqscan = off").execute(tx.connection()).await.unwrap();
    let plan = "explain verbose select session.is_use_due(last_seen_at, now(), '1 minute')
        from session.active_sessions(now()) where user_id = '00000000-0000-0000-0000-000000000000'";
    let plan: Vec<String> = sqlx::query_scalar(plan).fetch_all(tx.connection()).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("sessions_user_idx"), "{plan}");
    assert!(!plan.contains("Function Scan") && !plan.contains("is_use_due("), "{plan}");
}
