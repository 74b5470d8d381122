//! People with an authenticator app: the password alone creates no session, and each code is accepted once.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use reqwest::Method;
use serde_json::json;
use testkit::{TestResponse, totp, totp_step};

use crate::http::send;
use crate::people::{Person, Uncertain};

/// An authenticator app. A code counts as used when it was sent.
pub(crate) struct App {
    secret: String,
    last_step: AtomicI64,
}

impl App {
    fn new(secret: &str) -> Self {
        Self { secret: secret.to_owned(), last_step: AtomicI64::new(0) }
    }

    /// A code that was not used, if there is one: the service accepts the one before and the one after the current one too.
    fn unused_code(&self) -> Option<String> {
        let current = totp_step();
        let step = (self.last_step.load(Relaxed) + 1).max(current - 1);
        if step > current + 1 {
            return None;
        }
        self.last_step.store(step, Relaxed);
        Some(self.code(step))
    }

    fn code(&self, step: i64) -> String {
        totp(&self.secret, 30 * step)
    }
}

impl Person<'_> {
    /// Sets up an app with the session.
    pub(crate) async fn set_up_app(&mut self, session: &str) -> Result<(), Uncertain> {
        let client = self.client().bearer(session);
        let post = |path: &str| client.request(Method::POST, path);
        // Without a confirmation it has no effect.
        let Some(response) = self.findings.definite(send(post("/auth/factors/totp")).await) else {
            return Ok(());
        };
        let app = match response.json()["secret"].as_str() {
            Some(secret) if response.status == 201 => App::new(secret),
            _ => {
                self.violations("the app could not be set up", &response);
                return Err(Uncertain);
            }
        };
        let body = json!({ "code": app.unused_code() });
        let response = send(post("/auth/factors/totp/confirm").json(&body)).await;
        let response = self.findings.definite(response);
        self.expect_audit("authn_factor_change", response.as_ref(), 200);
        let response = response.ok_or(Uncertain)?;
        if response.status != 200 {
            self.reject_code(&response);
            return Err(Uncertain);
        }
        self.app = Some(app);
        Ok(())
    }

    /// Answers the response to a password with a code. Returns the response to the last request.
    pub(crate) async fn answer(&self, response: TestResponse) -> Option<TestResponse> {
        let Some(app) = &self.app else { return Some(response) };
        if response.status == 200 {
            self.violations("the password was enough, although there is a second factor", &response);
        }
        if response.status != 403 {
            return Some(response);
        }
        let challenge = response.json()["challenge"].clone();
        let code = app.unused_code()?;
        let request = || self.client().request(Method::POST, "/auth/second-factor");
        let body = json!({ "challenge": challenge, "code": code });
        let response = send(request().json(&body)).await;
        let response = self.findings.definite(response);
        self.expect_audit("authn_login_success", response.as_ref(), 200);
        self.expect_audit("session_created", response.as_ref(), 200);
        let response = response?;
        match response.status {
            200 => {
                if let Some(repeated) = self.findings.definite(send(request().json(&body)).await)
                    && repeated.status != 400
                {
                    self.violations("a challenge and its code were accepted twice", &repeated);
                }
            }
            401 => {
                self.reject_code(&response);
                return None;
            }
            _ => {}
        }
        Some(response)
    }

    /// A right code is rejected only by a process with a wrong clock.
    fn reject_code(&self, response: &TestResponse) {
        if self.clocks_are_right() {
            self.violations("a right code was rejected", response);
        }
    }
}
