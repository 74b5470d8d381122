//! Model test: random sequences of issue, use, wait, revoke and purge, compared with a small model.

use chrono::{DateTime, TimeDelta, Utc};
use contract::Page;
use contract::internal::{Credential, SubjectRecord, TenantRecord};
use contract::session::Session;
use hashing::RawToken;
use http::{Method, Request, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use service::Clock as _;
use tenancy::{SessionId, UserId};

use crate::context::{Context, subject, tenant};

/// A step. Numbers select one of the sessions created so far.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(i64),
    Issue {
        user: usize,
    },
    Use(usize),
    LogOut(usize),
    /// Revokes all sessions of the user with one of them, which can be kept.
    RevokeAll {
        by: usize,
        keep: bool,
    },
    /// Changes the password with a session, which is kept.
    ChangePassword(usize),
    /// Resets the password of a user, which keeps no session.
    ResetPassword {
        user: usize,
    },
    List(usize),
    Purge,
}

const USERS: usize = 2;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let user = || 0..USERS;
    let one = 0_usize..8;
    let wait =
        prop_oneof![0..2 * MINUTE, 50 * MINUTE..70 * MINUTE, 6 * HOUR..14 * HOUR, 20 * HOUR..50 * HOUR];
    let step = prop_oneof![
        4 => wait.prop_map(Step::Wait),
        3 => user().prop_map(|user| Step::Issue { user }),
        4 => one.clone().prop_map(Step::Use),
        1 => one.clone().prop_map(Step::LogOut),
        1 => (one.clone(), any::<bool>()).prop_map(|(by, keep)| Step::RevokeAll { by, keep }),
        1 => one.clone().prop_map(Step::ChangePassword),
        1 => user().prop_map(|user| Step::ResetPassword { user }),
        2 => one.prop_map(Step::List),
        1 => Just(Step::Purge),
    ];
    prop::collection::vec(step, 1..32)
}

/// A session of the model.
#[derive(Clone, Debug)]
struct ModelSession {
    user: usize,
    last_seen_at: DateTime<Utc>,
    idle_expires_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    /// A change or reset of the password has invalidated it.
    outdated: bool,
    purged: bool,
}

impl ModelSession {
    fn new(user: usize, now: DateTime<Utc>) -> Self {
        Self {
            user,
            last_seen_at: now,
            idle_expires_at: now + TimeDelta::hours(1),
            expires_at: now + TimeDelta::hours(12),
            revoked_at: None,
            outdated: false,
            purged: false,
        }
    }

    fn is_active(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && !self.outdated && now < self.idle_expires_at && now < self.expires_at
    }

    /// Records a use, at most once per minute. Returns whether the session is active.
    fn touch(&mut self, now: DateTime<Utc>) -> bool {
        if self.is_active(now) && now - self.last_seen_at >= TimeDelta::minutes(1) {
            self.last_seen_at = now;
            self.idle_expires_at = self.expires_at.min(now + TimeDelta::hours(1));
        }
        self.is_active(now)
    }

    fn was_inactive_before(&self, time: DateTime<Utc>) -> bool {
        let times = [Some(self.expires_at), Some(self.idle_expires_at), self.revoked_at];
        times.into_iter().flatten().any(|at| at < time)
    }
}

/// Applies the same steps to the service and to the model.
struct Run<'a> {
    context: &'a Context,
    tenant: TenantRecord,
    users: [SubjectRecord; USERS],
    real: Vec<(SessionId, RawToken)>,
    model: Vec<ModelSession>,
}

impl<'a> Run<'a> {
    fn new(context: &'a Context) -> Self {
        let tenant_id: tenancy::TenantId = format!("t-{}", UserId::generate()).parse().unwrap();
        Self {
            context,
            tenant: TenantRecord { tenant_id: tenant_id.clone(), ..tenant() },
            users: [(); USERS].map(|()| SubjectRecord { tenant_id: tenant_id.clone(), ..subject() }),
            real: Vec::new(),
            model: Vec::new(),
        }
    }

    fn now(&self) -> DateTime<Utc> {
        self.context.clock.now()
    }

    async fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Wait(seconds) => self.context.clock.advance(TimeDelta::seconds(seconds)),
            Step::Issue { user } => self.issue(user).await,
            Step::ResetPassword { user } => self.invalidate(user, None).await,
            Step::Purge => self.purge().await?,
            // All other steps need a session.
            _ if self.real.is_empty() => {}
            Step::Use(place) => self.use_one(place % self.real.len()).await?,
            Step::LogOut(place) => self.log_out(place % self.real.len()).await?,
            Step::RevokeAll { by, keep } => self.revoke_all(by % self.real.len(), keep).await?,
            Step::ChangePassword(place) => self.change_password(place % self.real.len()).await?,
            Step::List(place) => self.list(place % self.real.len()).await?,
        }
        Ok(())
    }

    async fn issue(&mut self, user: usize) {
        let token = self.context.issue(&self.users[user], &self.tenant).await.unwrap();
        let subject = self.context.introspect(&[&token]).await.remove(0).unwrap();
        let Credential::Session { session_id, .. } = subject.credential else { panic!("expected a session") };
        self.real.push((session_id, token));
        self.model.push(ModelSession::new(user, self.now()));
    }

    async fn use_one(&mut self, place: usize) -> Result<(), TestCaseError> {
        let active = self.context.is_active(&self.real[place].1).await;
        prop_assert_eq!(active, self.touch(place).await);
        Ok(())
    }

    /// Records a use in the model and waits until the service has saved it. Returns whether the session is active.
    async fn touch(&mut self, place: usize) -> bool {
        let now = self.now();
        let session = &mut self.model[place];
        let is_active = session.touch(now);
        if is_active && session.last_seen_at == now {
            self.context.wait_until_use_saved(&self.real[place].1).await;
        }
        is_active
    }

    async fn log_out(&mut self, place: usize) -> Result<(), TestCaseError> {
        let request = Request::post("/api/v1/auth/sessions/logout")
            .header("x-session-id", self.real[place].1.expose())
            .body(axum::body::Body::empty());
        let status = self.context.send(request.unwrap()).await.status();
        let now = self.now();
        let session = &mut self.model[place];
        let expected = if session.purged { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT };
        prop_assert_eq!(status, expected);
        session.revoked_at = session.revoked_at.or(Some(now));
        Ok(())
    }

    async fn revoke_all(&mut self, by: usize, keep: bool) -> Result<(), TestCaseError> {
        let (status, _) = self.request_sessions(Method::DELETE, by, &format!("?keep_current={keep}")).await;
        let now = self.now();
        // If the session revokes itself, its use is not saved.
        let is_active = if keep { self.touch(by).await } else { self.model[by].touch(now) };
        if !is_active {
            prop_assert_eq!(status, StatusCode::UNAUTHORIZED);
            return Ok(());
        }
        prop_assert_eq!(status, StatusCode::NO_CONTENT);
        let user = self.model[by].user;
        for (place, session) in self.model.iter_mut().enumerate() {
            if session.user == user && !(keep && place == by) {
                session.revoked_at = session.revoked_at.or(Some(now));
            }
        }
        Ok(())
    }

    async fn change_password(&mut self, place: usize) -> Result<(), TestCaseError> {
        self.use_one(place).await?;
        if self.model[place].is_active(self.now()) {
            self.invalidate(self.model[place].user, Some(place)).await;
        }
        Ok(())
    }

    /// Increases the credential version of a user; one session can be kept.
    async fn invalidate(&mut self, user: usize, kept: Option<usize>) {
        let record = &mut self.users[user];
        record.version += 1;
        record.credential_version += 1;
        record.kept_session_id = kept.map(|place| self.real[place].0);
        self.context.apply_subject(record).await;
        for (place, session) in self.model.iter_mut().enumerate() {
            session.outdated |= session.user == user && kept != Some(place);
        }
    }

    async fn list(&mut self, by: usize) -> Result<(), TestCaseError> {
        let (status, body) = self.request_sessions(Method::GET, by, "?limit=200").await;
        let now = self.now();
        if !self.touch(by).await {
            prop_assert_eq!(status, StatusCode::UNAUTHORIZED);
            return Ok(());
        }
        let page: Page<Session> = serde_json::from_slice(&body).unwrap();
        let listed: Vec<_> =
            page.items.iter().map(|it| (it.id, it.last_seen_at, it.idle_expires_at, it.current)).collect();
        let user = self.model[by].user;
        let sessions = self.real.iter().zip(&self.model).enumerate();
        let own = sessions.filter(|(_, (_, session))| session.user == user && session.is_active(now));
        let expected: Vec<_> = own
            .map(|(place, ((id, _), it))| (*id, it.last_seen_at, it.idle_expires_at, Some(place == by)))
            .collect();
        prop_assert_eq!(listed, expected);
        Ok(())
    }

    async fn purge(&mut self) -> Result<(), TestCaseError> {
        let before = self.now() - TimeDelta::hours(24);
        self.context.purge_sessions(before).await;
        for session in &mut self.model {
            session.purged |= session.was_inactive_before(before);
        }
        let stored = self.context.sessions_of(&self.tenant.tenant_id).await;
        let expected = self.real.iter().zip(&self.model).filter(|(_, session)| !session.purged);
        prop_assert_eq!(stored, expected.map(|((id, _), _)| *id).collect::<Vec<_>>());
        Ok(())
    }

    /// Sends a request about a session's user with that session.
    async fn request_sessions(&self, method: Method, place: usize, query: &str) -> (StatusCode, Vec<u8>) {
        let user_id = self.users[self.model[place].user].user_id;
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/auth/sessions{query}"))
            .header("authorization", format!("Bearer {}", self.real[place].1.expose()))
            .header("x-user-id", user_id.to_string())
            .body(axum::body::Body::empty());
        let response = self.context.send(request.unwrap()).await;
        (response.status(), response.into_body())
    }
}

async fn compare_with_model(context: &Context, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut run = Run::new(context);
    for step in steps {
        run.apply(*step).await?;
    }
    // Finally, each session is in the state of the model.
    for place in 0..run.real.len() {
        run.use_one(place).await?;
    }
    Ok(())
}

#[test]
fn random_sequences_match_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let context = runtime.block_on(Context::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    runner.run(&steps(), |steps| runtime.block_on(compare_with_model(&context, &steps))).unwrap();
}
