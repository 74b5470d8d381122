//! People with accounts: each does one thing at a time, so its history has one order, and each response is compared with it. A request
//! without a definite response may or may not have had its effect: a revocation is repeated, after another change the person is replaced.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use e2e::ApiUser;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Client, PASSWORD, TestResponse};
use tokio::time::sleep;

use crate::audit::AuditTrail;
use crate::factors::Factor;
use crate::findings::Findings;
use crate::http::send;
use crate::mails::Mails;
use crate::producers::Load;

/// ingest rejects a revoked credential in requests that start this long after the response to the revocation.
const REVOCATION_DELAY: Duration = Duration::from_secs(5);
/// Sessions that a password change or a disabled account ends are rejected at the latest after this time without faults.
const RECOVERY: Duration = Duration::from_mins(1);
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// A mail arrives within this time: the longest faults of a round, and a recovery.
const DELIVERY: Duration = Duration::from_mins(2);
/// Sessions that have ended are checked for this time.
const CHECKED_AFTERWARDS: Duration = Duration::from_secs(15);
const MAX_SESSIONS: usize = 8;

/// A tenant with its administrator.
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    pub(crate) admin: ApiUser,
    platform_token: String,
    base_url: String,
    ingest_urls: Vec<String>,
    people: AtomicU64,
    audit: Arc<AuditTrail>,
    mails: Arc<Mails>,
}

/// A session, and when its revocation was acknowledged.
struct Session {
    token: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    /// Rejected by the session service from this time on.
    Revoked(Instant),
    /// A change of the account at this time ends it as soon as the session service has the change.
    Ending(Instant),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => write!(f, "an active session"),
            Self::Revoked(at) => write!(f, "a session that was revoked {:.1?} ago", at.elapsed()),
            Self::Ending(at) => write!(f, "a session that was ended {:.1?} ago", at.elapsed()),
        }
    }
}

/// Asked until the response is the expected one.
#[derive(Clone, Copy, Debug)]
enum Question<'a> {
    Session(&'a str),
    Login(&'a str),
}

/// Why a history ends before its round.
pub(crate) struct Uncertain;

pub(crate) struct Person<'a> {
    tenant: &'a Tenant,
    pub(crate) findings: &'a Findings,
    email: String,
    user_id: String,
    password: String,
    former_password: Option<String>,
    sessions: Vec<Session>,
    pub(crate) factor: Option<Factor>,
}

impl Tenant {
    pub(crate) async fn create(
        name: &'static str,
        base_url: &str,
        ingest_urls: &[String],
        platform_token: &str,
        audit: &Arc<AuditTrail>,
        mails: &Arc<Mails>,
    ) -> Arc<Self> {
        let email = format!("admin@{name}.example");
        let admin = ApiUser::create_tenant(base_url, platform_token, name, &email).await;
        let (base_url, ingest_urls) = (base_url.to_owned(), ingest_urls.to_vec());
        let (audit, mails) = (Arc::clone(audit), Arc::clone(mails));
        let platform_token = platform_token.to_owned();
        let people = AtomicU64::new(0);
        Arc::new(Self { name, admin, platform_token, base_url, ingest_urls, people, audit, mails })
    }

    /// Creates an API key.
    pub(crate) async fn create_key(&self) -> String {
        let key: Value =
            self.admin.client.post("/api-keys", &json!({ "name": "campaign" })).await.expect(201);
        key["key"].as_str().unwrap_or_else(|| panic!("no key: {key}")).to_owned()
    }

    /// Sends the requests of one person after the other until `stop` is set, and then checks the last one.
    pub(crate) async fn run_people(
        self: Arc<Self>,
        seed: u64,
        stop: Arc<AtomicBool>,
        findings: Arc<Findings>,
        load: Load,
    ) {
        let mut random = StdRng::seed_from_u64(seed);
        while !stop.load(Relaxed) {
            let Some(mut person) = Person::create(&self, &findings).await else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            // Of six people, two have an authenticator app, and one has a passkey.
            let mut history = match random.random_range(0..6) {
                0..2 => person.protect(false).await,
                2 => person.protect(true).await,
                _ => Ok(()),
            };
            while history.is_ok() && !stop.load(Relaxed) {
                let started = Instant::now();
                history = person.act(&mut random).await;
                load.pause(started.elapsed()).await;
            }
            if history.is_ok() {
                person.check_after_recovery().await;
            }
        }
    }
}

impl<'a> Person<'a> {
    /// Invites a person by mail, who accepts. Returns `None` if one of the requests failed.
    async fn create(tenant: &'a Tenant, findings: &'a Findings) -> Option<Self> {
        let email = format!("person-{}@{}.example", tenant.people.fetch_add(1, Relaxed), tenant.name);
        let invite = json!({ "email": email, "role": "member" });
        let request = tenant.admin.client.request(Method::POST, "/users/invite").json(&invite);
        let response = findings.definite(send(request).await)?;
        if response.status != 201 {
            findings.add(format!("the invite of {email} failed: {response}"));
            return None;
        }
        let deadline = Instant::now() + DELIVERY;
        let accepted = loop {
            match tenant.mails.invite_token(&email, findings) {
                Some(token) => break token,
                None if Instant::now() < deadline => sleep(RETRY_DELAY).await,
                None => {
                    findings.add(format!(
                        "no mail to {email} within {DELIVERY:?} after the response to the invite"
                    ));
                    return None;
                }
            }
        };
        let response = Self::accept(tenant, findings, &accepted).await?;
        let response = match tenant.mails.invite_token(&email, findings) {
            // A mail without a confirmed acceptance was sent again.
            Some(last) if response.status == 400 && last != accepted => {
                Self::accept(tenant, findings, &last).await?
            }
            _ => response,
        };
        if response.status != 201 {
            findings.add(format!("{email} could not accept the invite: {response}"));
            return None;
        }
        let user = response.json();
        let user_id = user["user_id"].as_str()?.to_owned();
        let (password, former_password, sessions) = (PASSWORD.to_owned(), None, Vec::new());
        let factor = None;
        Some(Self { tenant, findings, email, user_id, password, former_password, sessions, factor })
    }

    async fn accept(tenant: &Tenant, findings: &Findings, token: &str) -> Option<TestResponse> {
        let accept = json!({ "token": token, "password": PASSWORD });
        let request = Client::new(&tenant.base_url).request(Method::POST, "/users/accept-invite");
        findings.definite(send(request.json(&accept)).await)
    }

    async fn act(&mut self, random: &mut StdRng) -> Result<(), Uncertain> {
        let place = match self.sessions.len() {
            0 => None,
            count => Some(random.random_range(0..count)),
        };
        match (random.random_range(0..100), place) {
            (0..5, _) | (_, None) => self.log_in().await,
            (5..40, Some(place)) => self.check_at_session(place).await,
            (40..92, Some(place)) => {
                let url = &self.tenant.ingest_urls[random.random_range(0..self.tenant.ingest_urls.len())];
                self.check_at_ingest(place, url).await;
            }
            (92..97, Some(place)) => self.log_out(place).await,
            (97..99, Some(place)) => return self.change_password(place, random.random()).await,
            (_, Some(_)) => return self.disable_and_enable().await,
        }
        Ok(())
    }

    /// Logs in and sets up a passkey or an authenticator app.
    async fn protect(&mut self, has_passkey: bool) -> Result<(), Uncertain> {
        self.log_in().await;
        let Some(session) = self.sessions.last().map(|session| session.token.clone()) else { return Ok(()) };
        if has_passkey {
            self.add_passkey(&session).await?;
        } else {
            self.set_up_app(&session).await?;
        }
        // It was created without the factor, so it is no recent login.
        self.log_out(self.sessions.len() - 1).await;
        Ok(())
    }

    pub(crate) fn clocks_are_right(&self) -> bool {
        self.tenant.audit.lateness().is_zero()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.tenant.base_url).header("X-Tenant-ID", self.tenant.name)
    }

    /// Logs in. Returns the response to the last request, if it is definite.
    async fn try_password(&self, password: &str) -> Option<TestResponse> {
        let body = json!({ "email": self.email, "password": password });
        let request = self.client().request(Method::POST, "/auth/password/login").json(&body);
        let response = self.findings.definite(send(request).await);
        self.expect_audit("authn_login_success", response.as_ref(), 200);
        self.expect_audit("session_created", response.as_ref(), 200);
        self.answer(response?).await
    }

    pub(crate) fn expect_audit(&self, event: &str, response: Option<&TestResponse>, success: u16) {
        self.tenant.audit.expect(&self.user_id, event, response, success);
    }

    pub(crate) fn violations(&self, guarantee: &str, response: &TestResponse) {
        self.findings.add(format!("{} of {}: {guarantee}: {response}", self.email, self.tenant.name));
    }

    /// Logs in, unless there are enough sessions to check.
    async fn log_in(&mut self) {
        self.sessions.retain(|session| match session.state {
            State::Active => true,
            State::Revoked(at) | State::Ending(at) => at.elapsed() < CHECKED_AFTERWARDS,
        });
        if self.sessions.len() == MAX_SESSIONS {
            return;
        }
        let Some(response) = self.try_password(&self.password).await else { return };
        if response.status != 200 {
            return self.violations("the right password was rejected", &response);
        }
        let session = response.json();
        let token = session["session_id"].as_str().unwrap_or_default().to_owned();
        self.sessions.push(Session { token, state: State::Active });
    }

    /// Asks the session service, which has no cache.
    async fn ask_session(&self, token: &str) -> Option<TestResponse> {
        let client = Client::new(&self.tenant.base_url).bearer(token);
        let started = Instant::now();
        let response = send(client.request(Method::GET, "/auth/session")).await;
        self.findings.record_time("session checks", started.elapsed());
        self.findings.definite(response)
    }

    async fn check_at_session(&mut self, place: usize) {
        let Session { token, state } = &self.sessions[place];
        let Some(response) = self.ask_session(token).await else { return };
        match (response.status, state) {
            (200, State::Active | State::Ending(_)) | (401, State::Revoked(_) | State::Ending(_)) => {}
            (_, state) => {
                self.violations(&format!("{state}, checked at the session service"), &response);
            }
        }
    }

    /// Sends no event: the response to an invalid one shows whether the credential is accepted.
    async fn check_at_ingest(&self, place: usize, url: &str) {
        let Session { token, state } = &self.sessions[place];
        let request = Client::new(url).bearer(token).request(Method::POST, "/events");
        let started_at = Instant::now();
        let request = request.header("Content-Type", "application/json").body("no event");
        let Some(response) = self.findings.definite(send(request).await) else { return };
        match (response.status, state) {
            (400, State::Active) | (401, State::Revoked(_)) | (400 | 401, State::Ending(_)) => {}
            (400, State::Revoked(at)) if started_at < *at + REVOCATION_DELAY => {}
            (_, state) => self.violations(&format!("{state}, checked at {url}"), &response),
        }
    }

    /// Revokes a session, until the response is definite.
    async fn log_out(&mut self, place: usize) {
        if self.sessions[place].state != State::Active {
            return;
        }
        let mut is_repeated = false;
        loop {
            let client =
                Client::new(&self.tenant.base_url).header("X-Session-ID", &self.sessions[place].token);
            let response = send(client.request(Method::POST, "/auth/sessions/logout")).await;
            match self.findings.definite(response) {
                Some(response) if response.status == 204 => break,
                // An earlier request without a response has revoked it.
                Some(response) if response.status == 404 && is_repeated => break,
                Some(response) => return self.violations("logout failed", &response),
                None => {
                    is_repeated = true;
                    sleep(RETRY_DELAY).await;
                }
            }
        }
        self.sessions[place].state = State::Revoked(Instant::now());
    }

    /// Changes the password with one session, which ends all others.
    async fn change_password(&mut self, place: usize, number: u32) -> Result<(), Uncertain> {
        if self.sessions[place].state != State::Active {
            return Ok(());
        }
        let password = format!("brisk-otter-lantern-{number}");
        let body = json!({ "current_password": self.password, "new_password": password });
        let client = self.client().bearer(&self.sessions[place].token).header("X-User-ID", &self.user_id);
        let response = send(client.request(Method::POST, "/auth/password/change").json(&body)).await;
        let response = self.findings.definite(response);
        self.expect_audit("authn_password_change", response.as_ref(), 204);
        let response = response.ok_or(Uncertain)?;
        if response.status != 204 {
            self.violations("the password could not be changed", &response);
            return Err(Uncertain);
        }
        self.former_password = Some(std::mem::replace(&mut self.password, password));
        let changed_with = self.sessions.remove(place);
        self.end_sessions();
        self.sessions.push(changed_with);
        Ok(())
    }

    /// The platform administrator disables the account, which ends all sessions, and enables it.
    async fn disable_and_enable(&mut self) -> Result<(), Uncertain> {
        self.set_status("disabled").await?;
        self.end_sessions();
        if let Some(response) = self.try_password(&self.password).await
            && response.status != 401
        {
            self.violations("a disabled user can log in", &response);
        }
        self.set_status("active").await
    }

    async fn set_status(&self, status: &str) -> Result<(), Uncertain> {
        let path = format!("/users/{}", self.user_id);
        // An administrator needs a login of the last ten minutes.
        let client = e2e::api_client(&self.tenant.base_url).bearer(&self.tenant.platform_token);
        let client = client.header("X-Tenant-ID", self.tenant.name);
        let request = client.request(Method::PATCH, &path).json(&json!({ "status": status }));
        let response = self.findings.definite(send(request).await);
        self.expect_audit("user_updated", response.as_ref(), 200);
        let response = response.ok_or(Uncertain)?;
        if response.status != 200 {
            self.violations("the status could not be changed", &response);
            return Err(Uncertain);
        }
        Ok(())
    }

    fn end_sessions(&mut self) {
        for session in &mut self.sessions {
            if session.state == State::Active {
                session.state = State::Ending(Instant::now());
            }
        }
    }

    /// After all faults, the state of each session is the one of the history, and only the last password is accepted.
    async fn check_after_recovery(&self) {
        let status = |is_valid| if is_valid { 200 } else { 401 };
        let sessions = self
            .sessions
            .iter()
            .map(|session| (Question::Session(&session.token), status(session.state == State::Active)));
        let former = self.former_password.iter().map(|password| (Question::Login(password), status(false)));
        let last = (Question::Login(&self.password), status(true));
        let deadline = Instant::now() + RECOVERY;
        for (question, expected) in sessions.chain(former).chain([last]) {
            loop {
                let response = match question {
                    Question::Session(token) => self.ask_session(token).await,
                    Question::Login(password) => self.try_password(password).await,
                };
                match response {
                    Some(response) if response.status == expected => break,
                    _ if Instant::now() < deadline => sleep(RETRY_DELAY).await,
                    Some(response) => {
                        self.violations(
                            &format!("{question:?} after the faults, expected {expected}"),
                            &response,
                        );
                        break;
                    }
                    None => {
                        self.findings
                            .add(format!("{}: no response to {question:?} after the faults", self.email));
                        break;
                    }
                }
            }
        }
    }
}
