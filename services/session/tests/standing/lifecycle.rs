//! Any interleaving of making, using, leaving alone, ending and purging sessions, against a model of a few lines.

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

/// What happens next. A number picks one of the sessions so far.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(i64),
    Issue {
        user: usize,
    },
    Use(usize),
    LogOut(usize),
    /// All sessions of the user, with this one, which may stay.
    EndAll {
        by: usize,
        stays: bool,
    },
    /// The password, with this session, which stays.
    Change(usize),
    /// The password of the user, by mail.
    Reset {
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
        1 => (one.clone(), any::<bool>()).prop_map(|(by, stays)| Step::EndAll { by, stays }),
        1 => one.clone().prop_map(Step::Change),
        1 => user().prop_map(|user| Step::Reset { user }),
        2 => one.prop_map(Step::List),
        1 => Just(Step::Purge),
    ];
    prop::collection::vec(step, 1..32)
}

/// A session as the model sees it.
#[derive(Clone, Debug)]
struct Modelled {
    user: usize,
    last_seen_at: DateTime<Utc>,
    idle_expires_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    /// A change or a reset has ended it.
    overtaken: bool,
    purged: bool,
}

impl Modelled {
    fn made(user: usize, now: DateTime<Utc>) -> Self {
        Self {
            user,
            last_seen_at: now,
            idle_expires_at: now + TimeDelta::hours(1),
            expires_at: now + TimeDelta::hours(12),
            revoked_at: None,
            overtaken: false,
            purged: false,
        }
    }

    fn lives(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && !self.overtaken && now < self.idle_expires_at && now < self.expires_at
    }

    /// A use, which is noted once a minute; tells whether it lives.
    fn touch(&mut self, now: DateTime<Utc>) -> bool {
        if self.lives(now) && now - self.last_seen_at >= TimeDelta::minutes(1) {
            self.last_seen_at = now;
            self.idle_expires_at = self.expires_at.min(now + TimeDelta::hours(1));
        }
        self.lives(now)
    }

    fn is_over_before(&self, time: DateTime<Utc>) -> bool {
        let ends = [Some(self.expires_at), Some(self.idle_expires_at), self.revoked_at];
        ends.into_iter().flatten().any(|end| end < time)
    }
}

/// The same steps taken by the service and by the model.
struct Run<'a> {
    context: &'a Context,
    tenant: TenantRecord,
    users: [SubjectRecord; USERS],
    real: Vec<(SessionId, RawToken)>,
    model: Vec<Modelled>,
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

    async fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Wait(seconds) => self.context.clock.advance(TimeDelta::seconds(seconds)),
            Step::Issue { user } => self.issue(user).await,
            Step::Reset { user } => self.overtake(user, None).await,
            Step::Purge => self.purge().await?,
            // The others are about a session.
            _ if self.real.is_empty() => {}
            Step::Use(place) => self.use_one(place % self.real.len()).await?,
            Step::LogOut(place) => self.log_out(place % self.real.len()).await?,
            Step::EndAll { by, stays } => self.end_all(by % self.real.len(), stays).await?,
            Step::Change(place) => self.change(place % self.real.len()).await?,
            Step::List(place) => self.list(place % self.real.len()).await?,
        }
        Ok(())
    }

    async fn issue(&mut self, user: usize) {
        let token = self.context.issue(&self.users[user], &self.tenant).await.unwrap();
        let told = self.context.introspect(&[&token]).await.remove(0).unwrap();
        let Credential::Session { session_id, .. } = told.credential else { panic!("a session is no key") };
        self.real.push((session_id, token));
        self.model.push(Modelled::made(user, self.now()));
    }

    async fn use_one(&mut self, place: usize) -> Result<(), TestCaseError> {
        let lives = self.context.lives(&self.real[place].1).await;
        let now = self.now();
        prop_assert_eq!(lives, self.model[place].touch(now));
        Ok(())
    }

    async fn log_out(&mut self, place: usize) -> Result<(), TestCaseError> {
        let request = Request::post("/api/v1/auth/sessions/logout")
            .header("x-session-id", self.real[place].1.expose())
            .body(axum::body::Body::empty());
        let status = self.context.send(request.unwrap()).await.status();
        let now = self.now();
        let session = &mut self.model[place];
        let known = if session.purged { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT };
        prop_assert_eq!(status, known);
        session.revoked_at = session.revoked_at.or(Some(now));
        Ok(())
    }

    async fn end_all(&mut self, by: usize, stays: bool) -> Result<(), TestCaseError> {
        let (status, _) = self.about_own(Method::DELETE, by, &format!("?keep_current={stays}")).await;
        let now = self.now();
        if !self.model[by].touch(now) {
            prop_assert_eq!(status, StatusCode::UNAUTHORIZED);
            return Ok(());
        }
        prop_assert_eq!(status, StatusCode::NO_CONTENT);
        let user = self.model[by].user;
        for (place, session) in self.model.iter_mut().enumerate() {
            if session.user == user && !(stays && place == by) {
                session.revoked_at = session.revoked_at.or(Some(now));
            }
        }
        Ok(())
    }

    async fn change(&mut self, place: usize) -> Result<(), TestCaseError> {
        self.use_one(place).await?;
        if self.model[place].lives(self.now()) {
            self.overtake(self.model[place].user, Some(place)).await;
        }
        Ok(())
    }

    /// The credentials move on; one session may stay.
    async fn overtake(&mut self, user: usize, stays: Option<usize>) {
        let record = &mut self.users[user];
        record.version += 1;
        record.credential_version += 1;
        record.kept_session_id = stays.map(|place| self.real[place].0);
        self.context.tell_subject(record).await;
        for (place, session) in self.model.iter_mut().enumerate() {
            session.overtaken |= session.user == user && stays != Some(place);
        }
    }

    async fn list(&mut self, by: usize) -> Result<(), TestCaseError> {
        let (status, body) = self.about_own(Method::GET, by, "?limit=200").await;
        let now = self.now();
        if !self.model[by].touch(now) {
            prop_assert_eq!(status, StatusCode::UNAUTHORIZED);
            return Ok(());
        }
        let page: Page<Session> = serde_json::from_slice(&body).unwrap();
        let listed: Vec<_> =
            page.items.iter().map(|it| (it.id, it.last_seen_at, it.idle_expires_at, it.current)).collect();
        let user = self.model[by].user;
        let known = self.real.iter().zip(&self.model).enumerate();
        let own = known.filter(|(_, (_, session))| session.user == user && session.lives(now));
        let expected: Vec<_> = own
            .map(|(place, ((id, _), it))| (*id, it.last_seen_at, it.idle_expires_at, place == by))
            .collect();
        prop_assert_eq!(listed, expected);
        Ok(())
    }

    async fn purge(&mut self) -> Result<(), TestCaseError> {
        let before = self.now() - TimeDelta::hours(24);
        self.context.purge_sessions(before).await;
        for session in &mut self.model {
            session.purged |= session.is_over_before(before);
        }
        let left = self.context.sessions_of(&self.tenant.tenant_id).await;
        let expected = self.real.iter().zip(&self.model).filter(|(_, session)| !session.purged);
        prop_assert_eq!(left, expected.map(|((id, _), _)| *id).collect::<Vec<_>>());
        Ok(())
    }

    /// Asks about the session's own user, with the session.
    async fn about_own(&self, method: Method, place: usize, query: &str) -> (StatusCode, Vec<u8>) {
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

async fn follows_the_model(context: &Context, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut run = Run::new(context);
    for step in steps {
        run.take(*step).await?;
    }
    // Whatever happened, each is as the model says in the end.
    for place in 0..run.real.len() {
        run.use_one(place).await?;
    }
    Ok(())
}

#[test]
fn any_interleaving_ends_as_the_model_says() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let context = runtime.block_on(Context::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    runner.run(&steps(), |steps| runtime.block_on(follows_the_model(&context, &steps))).unwrap();
}
