//! The sweep with a real Postgres.

use std::time::Duration;

use chrono::TimeDelta;
use contract::identity::{Quota, SecondFactorPolicy};
use contract::internal::{SubjectRecord, TenantRecord};
use contract::session::{AuthMethod, SessionMethod};
use contract::{Role, TenantStatus, UserStatus};
use hashing::TokenDigest;
use serde_json::{Value, json};
use tenancy::{SessionId, TenantId, UserId};
use testkit::{TestDatabase, join_all};

use super::*;
use crate::domain::account_status::AccountStatus;
use crate::domain::session::{Lifetimes, NewSession, Session, SessionLifecycle};
use crate::store::account_status::{apply_subject, apply_tenant};
use crate::store::credential::{self, Use, Uses};

const START: DateTime<Utc> = DateTime::UNIX_EPOCH;
const HOUR: Duration = Duration::from_hours(1);
const LIFETIMES: Lifetimes = Lifetimes {
    password_idle: HOUR,
    password_max: Duration::from_hours(12),
    device_idle: HOUR,
    device_max: HOUR,
};

struct Fixture {
    test: TestDatabase,
    database: Database,
}

impl Fixture {
    async fn start() -> Self {
        let test = TestDatabase::create().await.unwrap();
        let database = test.pool("svc_session").unwrap();
        Self { test, database }
    }

    /// Inserts a session of a new user.
    async fn insert(&self, tenant_id: &str) -> StoredSession {
        let tenant_id: TenantId = tenant_id.parse().unwrap();
        let tenant = TenantRecord {
            tenant_id: tenant_id.clone(),
            status: TenantStatus::Active,
            session_version: 1,
            quota: Quota::default(),
            second_factor: SecondFactorPolicy::Optional,
            is_deleted: false,
            version: 1,
        };
        let subject = SubjectRecord {
            user_id: UserId::generate(),
            tenant_id: tenant_id.clone(),
            role: Role::Member,
            status: UserStatus::Active,
            credential_version: 1,
            kept_session_id: None,
            api_key_version: 1,
            has_factor: false,
            is_deleted: false,
            version: 1,
        };
        let mut tx = self.database.begin(&tenant_id, Actor::System, START).await.unwrap();
        apply_tenant(&mut tx, &tenant).await.unwrap();
        apply_subject(&mut tx, &subject).await.unwrap();
        let versions = AccountStatus::from_records(&tenant, &subject).versions;
        let method = SessionMethod::Password;
        let new = NewSession {
            versions,
            method,
            amr: vec![AuthMethod::Pwd],
            ip: None,
            user_agent: None,
            client_name: None,
        };
        let lifecycle = SessionLifecycle::start(&LIFETIMES, method, START);
        let id = SessionId::generate();
        let stored = StoredSession {
            session: Session { id, created_under: versions, lifecycle },
            digest: TokenDigest::from_text(&id.to_string()),
        };
        session::insert(&mut tx, &new, &stored).await.unwrap();
        tx.commit().await.unwrap();
        stored
    }

    async fn sweep(&self, now: DateTime<Utc>, batch: i32) -> Result<(), database::Error> {
        record_expired_sessions(&self.database, now, batch).await
    }

    /// Saves a use of a session.
    async fn save_use(&self, stored: &StoredSession, used_at: DateTime<Utc>, idle_expires_at: DateTime<Utc>) {
        let it = Use { used_at, idle_expires_at: Some(idle_expires_at) };
        let mut uses = Uses::from([(stored.session.id.0, it)]);
        credential::save_uses(&self.database, &mut uses).await.unwrap();
    }

    async fn run_sql(&self, statement: &'static str) {
        let mut connection = self.test.superuser().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    }

    /// Returns the recorded events.
    async fn events(&self) -> Vec<Value> {
        let mut connection = self.test.superuser().await.unwrap();
        let select = "select payload from session.outbox where payload ->> 'name' = 'session_expired'";
        sqlx::query_scalar(select).fetch_all(&mut connection).await.unwrap()
    }

    /// Returns the sessions of the recorded events.
    async fn recorded(&self) -> Vec<String> {
        let events = self.events().await;
        let ids = events.iter().map(|event| event["event"]["session_id"].as_str().unwrap().to_owned());
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        ids
    }
}

#[tokio::test]
async fn an_unused_session_is_recorded_once_a_minute_after_it_expired() {
    let fixture = Fixture::start().await;
    let stored = fixture.insert("acme").await;
    let due = START + TimeDelta::minutes(61);
    fixture.sweep(due - TimeDelta::microseconds(1), 10).await.unwrap();
    assert_eq!(fixture.events().await, [] as [Value; 0]);
    for days in [0, 0, 1] {
        fixture.sweep(due + TimeDelta::days(days), 10).await.unwrap();
    }
    let events = fixture.events().await;
    let occurred_at: DateTime<Utc> = serde_json::from_value(events[0]["occurred_at"].clone()).unwrap();
    assert_eq!(occurred_at, START + TimeDelta::hours(1));
    let expected = json!({
        "name": "session_expired", "occurred_at": events[0]["occurred_at"], "event": {
            "event": "session_expired", "actor": {"type": "system"}, "about": "idle",
            "user_id": stored.session.created_under.user_id, "session_id": stored.session.id,
            "credential": stored.digest.prefix(),
        }
    });
    assert_eq!(events, [expected]);
}

#[tokio::test]
async fn a_session_in_use_is_recorded_at_its_absolute_lifetime_and_a_revoked_one_never() {
    let fixture = Fixture::start().await;
    let (used, revoked) = (fixture.insert("acme").await, fixture.insert("acme").await);
    let mut tx = fixture.database.begin(&"acme".parse().unwrap(), Actor::System, START).await.unwrap();
    let lifecycle = revoked.session.lifecycle.revoke(START).unwrap();
    session::save_revocation(&mut tx, revoked.session.id, &lifecycle).await.unwrap();
    tx.commit().await.unwrap();
    let end = START + TimeDelta::hours(12);
    fixture.save_use(&used, START + TimeDelta::minutes(59), end).await;
    fixture.sweep(end, 10).await.unwrap();
    assert_eq!(fixture.recorded().await, [] as [String; 0]);
    fixture.sweep(end + TimeDelta::minutes(1), 10).await.unwrap();
    assert_eq!(fixture.recorded().await, [used.session.id.to_string()]);
    assert_eq!(fixture.events().await[0]["event"]["about"], "absolute");
}

#[tokio::test]
async fn concurrent_sweeps_record_each_session_of_all_tenants_once() {
    let fixture = Fixture::start().await;
    let mut expected = Vec::new();
    for tenant_id in ["acme", "beta", "gamma"].iter().cycle().take(21) {
        expected.push(fixture.insert(tenant_id).await.session.id.to_string());
    }
    let now = START + TimeDelta::hours(2);
    // A sweep ends when another one has locked all sessions that it found.
    while fixture.recorded().await.len() < expected.len() {
        for swept in join_all((0..4).map(|_| fixture.sweep(now, 2))).await {
            swept.unwrap();
        }
    }
    expected.sort();
    assert_eq!(fixture.recorded().await, expected);
}

#[tokio::test]
async fn a_sweep_that_fails_loses_no_event() {
    let fixture = Fixture::start().await;
    let stored = fixture.insert("acme").await;
    let now = START + TimeDelta::hours(2);
    fixture.run_sql("alter table session.outbox rename to missing").await;
    assert!(fixture.sweep(now, 10).await.is_err());
    fixture.run_sql("alter table session.missing rename to outbox").await;
    fixture.sweep(now, 10).await.unwrap();
    assert_eq!(fixture.recorded().await, [stored.session.id.to_string()]);
}

#[tokio::test]
async fn a_session_is_not_recorded_if_a_use_is_saved_meanwhile() {
    let fixture = Fixture::start().await;
    let stored = fixture.insert("acme").await;
    let by = START + TimeDelta::hours(1);
    let found = session::list_expired(&fixture.database, by, 10).await.unwrap();
    let ids = vec![stored.session.id];
    assert_eq!(found, [("acme".parse().unwrap(), ids.clone())]);
    fixture.save_use(&stored, START + TimeDelta::minutes(59), by + TimeDelta::minutes(59)).await;
    let mut tx = fixture.database.begin(&"acme".parse().unwrap(), Actor::System, by).await.unwrap();
    assert!(session::mark_expired(&mut tx, &ids, by).await.unwrap().is_empty());
}
