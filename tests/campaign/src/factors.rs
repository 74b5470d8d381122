//! People with a second factor, an authenticator app or a passkey, and recovery codes: the password alone creates no session, and each
//! answer to a challenge is accepted once.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Authenticator, TestResponse, totp, totp_step};

use crate::http::send;
use crate::people::{Person, Uncertain};

/// The origin of the pages. Passkeys need a host name.
pub(crate) const ORIGIN: &str = "https://svc.example";
/// One login of this number uses a recovery code, as long as there are any.
const RECOVERIES: u64 = 5;

/// The second factor of a person.
pub(crate) struct Factor {
    device: Device,
    /// Recovery codes that were not sent.
    recovery_codes: Mutex<Vec<String>>,
    logins: AtomicU64,
}

enum Device {
    App(App),
    Passkey(Box<Authenticator>),
}

/// An authenticator app. A code counts as used when it was sent.
struct App {
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
        Some(totp(&self.secret, 30 * step))
    }
}

impl Factor {
    /// The factor that a response has set up.
    fn new(device: Device, response: &TestResponse) -> Self {
        let codes = response.json()["recovery_codes"].as_array().cloned().unwrap_or_default();
        let codes = codes.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self { device, recovery_codes: Mutex::new(codes), logins: AtomicU64::new(0) }
    }

    /// The field of an answer to a challenge, and its value, which was not sent before. `None` until the app shows another code.
    fn answer(&self, problem: &Value) -> Option<(&'static str, Value)> {
        let is_recovery = self.logins.fetch_add(1, Relaxed) % RECOVERIES == RECOVERIES - 1;
        if is_recovery && let Some(code) = self.recovery_codes.lock().pop() {
            return Some(("recovery_code", code.into()));
        }
        match &self.device {
            Device::App(app) => Some(("code", app.unused_code()?.into())),
            Device::Passkey(authenticator) => Some(("assertion", authenticator.get(&problem["public_key"]))),
        }
    }
}

impl Person<'_> {
    /// Sets up an app with the session.
    pub(crate) async fn set_up_app(&mut self, session: &str) -> Result<(), Uncertain> {
        // Without a confirmation it has no effect.
        let Some(response) = self.start_setup(session, "/auth/factors/totp").await? else { return Ok(()) };
        let app = App::new(response.json()["secret"].as_str().unwrap_or_default());
        let body = json!({ "code": app.unused_code() });
        let response = self.complete_setup(session, "/auth/factors/totp/confirm", &body, 200).await?;
        if response.status != 200 {
            self.reject("a right code was rejected", &response);
            return Err(Uncertain);
        }
        self.factor = Some(Factor::new(Device::App(app), &response));
        Ok(())
    }

    /// Registers a passkey with the session.
    pub(crate) async fn add_passkey(&mut self, session: &str) -> Result<(), Uncertain> {
        let started = self.start_setup(session, "/auth/factors/passkeys/options").await?;
        let Some(options) = started.map(|response| response.json()) else { return Ok(()) };
        let mut authenticator = Box::new(Authenticator::new(ORIGIN));
        let credential = authenticator.create(&options["public_key"]);
        let body = json!({ "challenge": options["challenge"], "name": "campaign", "credential": credential });
        let response = self.complete_setup(session, "/auth/factors/passkeys", &body, 201).await?;
        if response.status != 201 {
            self.reject("a passkey was rejected", &response);
            return Err(Uncertain);
        }
        self.factor = Some(Factor::new(Device::Passkey(authenticator), &response));
        Ok(())
    }

    /// Requests the secret of an app or the options of a passkey. `None` without a definite response.
    async fn start_setup(&self, session: &str, path: &str) -> Result<Option<TestResponse>, Uncertain> {
        let request = self.client().bearer(session).request(Method::POST, path);
        let response = self.findings.definite(send(request).await);
        if let Some(response) = response.as_ref().filter(|response| response.status != 201) {
            self.violations("the set-up of a second factor could not be started", response);
            return Err(Uncertain);
        }
        Ok(response)
    }

    async fn complete_setup(
        &self,
        session: &str,
        path: &str,
        body: &Value,
        success: u16,
    ) -> Result<TestResponse, Uncertain> {
        let request = self.client().bearer(session).request(Method::POST, path).json(body);
        let response = self.findings.definite(send(request).await);
        self.expect_audit("authn_factor_change", response.as_ref(), success);
        response.ok_or(Uncertain)
    }

    /// Answers the response to a password with the second factor. Returns the response to the last request.
    pub(crate) async fn answer(&self, response: TestResponse) -> Option<TestResponse> {
        let Some(factor) = &self.factor else { return Some(response) };
        if response.status == 200 {
            self.violations("the password was enough, although there is a second factor", &response);
        }
        if response.status != 403 {
            return Some(response);
        }
        let problem = response.json();
        let (field, value) = factor.answer(&problem)?;
        let request = || self.client().request(Method::POST, "/auth/second-factor");
        let body = json!({ "challenge": problem["challenge"], field: value });
        let response = send(request().json(&body)).await;
        let response = self.findings.definite(response);
        self.expect_audit("authn_login_success", response.as_ref(), 200);
        self.expect_audit("session_created", response.as_ref(), 200);
        if field == "recovery_code" {
            self.expect_audit("authn_factor_change", response.as_ref(), 200);
        }
        let response = response?;
        match response.status {
            200 => {
                if let Some(repeated) = self.findings.definite(send(request().json(&body)).await)
                    && repeated.status != 400
                {
                    self.violations("a challenge and its answer were accepted twice", &repeated);
                }
            }
            401 if field == "code" => {
                self.reject("a right code was rejected", &response);
                return None;
            }
            401 => {
                self.violations(&format!("a right {field} was rejected"), &response);
                return None;
            }
            _ => {}
        }
        Some(response)
    }

    /// Only a process with a wrong clock rejects a right code, or the challenge of a registration.
    fn reject(&self, guarantee: &str, response: &TestResponse) {
        if self.clocks_are_right() {
            self.violations(guarantee, response);
        }
    }
}
