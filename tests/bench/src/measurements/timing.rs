//! Whether response times reveal which accounts exist: rejected logins of each kind, and password resets for known and unknown
//! e-mail addresses, in random order. Each attempt has its own client address, so that the back-off does not affect it.

use std::time::{Duration, Instant};

use contract::Secret;
use contract::identity::{CreateTenant, Delivery, Invite, Login, RequestReset, SecondFactorPolicy, Tenant};
use rand::seq::SliceRandom as _;
use serde_json::json;
use testkit::PASSWORD;

use super::{Bench, milliseconds};
use crate::http::{Connection, request};
use crate::report::ResponseTimes;
use crate::statistics::Comparison;

const ROUNDS: usize = 180;
const RESET_ROUNDS: usize = 200;
/// Rounds with the same accounts: fewer failed logins than the lockout threshold.
const ROUNDS_OF_ACCOUNT: usize = 90;
/// The lockout threshold.
const LOCKOUT_THRESHOLD: usize = 100;
/// The process writes the mail of a reset after the response.
const PAUSE: Duration = Duration::from_millis(5);
const WRONG: &str = "wrong-password-altogether";
const LOGIN: &str = "/api/v1/auth/password/login";
const RESET: &str = "/api/v1/auth/password/reset";

/// A kind of request, without its client address.
struct Kind {
    name: &'static str,
    path: &'static str,
    tenant: String,
    body: Vec<u8>,
    times: Vec<f64>,
}

impl Bench<'_> {
    pub(crate) async fn response_times(&mut self) -> anyhow::Result<()> {
        let rounds: Vec<_> = (0..self.rounds(ROUNDS)).collect();
        let mut logins = Vec::<Kind>::new();
        for rounds in rounds.chunks(ROUNDS_OF_ACCOUNT) {
            let mut kinds = self.rejected_logins(rounds[0]).await?;
            for kind in &mut kinds {
                let earlier = logins.iter_mut().find(|earlier| earlier.name == kind.name);
                kind.times = earlier.map(|earlier| std::mem::take(&mut earlier.times)).unwrap_or_default();
            }
            self.send_in_random_order(&mut kinds, rounds.len(), 401).await?;
            logins = kinds;
        }
        self.report_times("rejected login: ", &logins);
        let mut resets = self.resets()?;
        self.send_in_random_order(&mut resets, self.rounds(RESET_ROUNDS), 204).await?;
        self.report_times("password reset: ", &resets);
        Ok(())
    }

    /// All kinds of rejected logins, with accounts for the rounds from this one.
    async fn rejected_logins(&self, round: usize) -> anyhow::Result<Vec<Kind>> {
        let tenant = self.user.tenant_id().as_str();
        let address = |name: &str| address(&format!("{name}-{round}"));
        let suspended = format!("suspended-{round}");
        for name in ["wrong", "empty", "locked", "disabled"] {
            self.user.invite(self.system, &address(name)).await?;
        }
        self.disable(&address("disabled")).await?;
        let invited = json!({ "email": address("invited"), "delivery": "response" }).to_string();
        let mut connection = Connection::open(self.system.address).await?;
        let invite = self.user.post("/api/v1/users/invite", invited.as_bytes());
        let _: Invite = serde_json::from_slice(connection.exchange(&invite).await?.expect(201)?)?;
        self.create_suspended_tenant(&suspended, &address("admin")).await?;
        let kind =
            |name, tenant: &str, user: &str, password: &str| login(name, tenant, &address(user), password);
        let kinds = vec![
            kind("wrong password", tenant, "wrong", WRONG)?,
            kind("empty password", tenant, "empty", "")?,
            kind("unknown e-mail", tenant, "unknown", PASSWORD)?,
            kind("unknown tenant", "unknown", "wrong", PASSWORD)?,
            kind("suspended tenant", &suspended, "admin", PASSWORD)?,
            kind("pending invite", tenant, "invited", PASSWORD)?,
            kind("disabled user", tenant, "disabled", PASSWORD)?,
            kind("locked account", tenant, "locked", PASSWORD)?,
        ];
        let lock = login("lock", tenant, &address("locked"), WRONG)?;
        for n in 0..LOCKOUT_THRESHOLD {
            connection.exchange(&lock.request_from(n)).await?.expect(401)?;
        }
        Ok(kinds)
    }

    async fn disable(&self, email: &str) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.system.address).await?;
        let path = format!("/api/v1/users?email={email}");
        let found = self.user.with_bearer("GET", &path, b"");
        let found: serde_json::Value =
            serde_json::from_slice(connection.exchange(&found).await?.expect(200)?)?;
        let path = format!("/api/v1/users/{}", found["items"][0]["user_id"].as_str().unwrap_or_default());
        let disable = self.user.with_bearer("PATCH", &path, br#"{"status":"disabled"}"#);
        connection.exchange(&disable).await?.expect(200)?;
        Ok(())
    }

    async fn create_suspended_tenant(&self, id: &str, admin_email: &str) -> anyhow::Result<()> {
        let platform_token = std::fs::read_to_string(&self.system.run_file.platform_token_file)?;
        let bearer = format!("Bearer {}", platform_token.trim());
        let headers = [("Authorization", bearer.as_str())];
        let create = CreateTenant {
            tenant_id: id.parse()?,
            display_name: "Suspended".to_owned(),
            admin_email: Some(admin_email.to_owned()),
            delivery: Delivery::Response,
            quota: None,
            second_factor: SecondFactorPolicy::Optional,
            password_min_length: None,
            passkey_login: None,
        };
        let create = request("POST", "/api/v1/tenants", &headers, &serde_json::to_vec(&create)?);
        let mut connection = Connection::open(self.system.address).await?;
        let tenant: Tenant = serde_json::from_slice(connection.exchange(&create).await?.expect(201)?)?;
        let token = tenant.invite.and_then(|invite| invite.token).unwrap_or_else(|| Secret::new(""));
        crate::user::accept_invite(self.system.address, token).await?;
        let suspend =
            request("PATCH", &format!("/api/v1/tenants/{id}"), &headers, br#"{"status":"suspended"}"#);
        connection.exchange(&suspend).await?.expect(200)?;
        Ok(())
    }

    fn resets(&self) -> anyhow::Result<Vec<Kind>> {
        let tenant = self.user.tenant_id().as_str();
        let kind = |name, email: String| {
            let body = serde_json::to_vec(&RequestReset { email })?;
            anyhow::Ok(Kind { name, path: RESET, tenant: tenant.to_owned(), body, times: Vec::new() })
        };
        Ok(vec![kind("known e-mail", address("wrong-0"))?, kind("unknown e-mail", address("unknown"))?])
    }

    /// Sends one request of each kind per round, in a random order.
    #[expect(clippy::disallowed_methods, reason = "another order each time")]
    async fn send_in_random_order(
        &self,
        kinds: &mut [Kind],
        rounds: usize,
        status: u16,
    ) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.system.address).await?;
        for _ in 0..rounds {
            kinds.shuffle(&mut rand::rng());
            for kind in &mut *kinds {
                tokio::time::sleep(PAUSE).await;
                let request = kind.request_from(1000 + kind.times.len());
                let started = Instant::now();
                connection.exchange(&request).await?.expect(status)?;
                kind.times.push(milliseconds(started.elapsed()));
            }
        }
        Ok(())
    }

    fn report_times(&mut self, prefix: &'static str, kinds: &[Kind]) {
        let first = ["wrong password", "known e-mail"];
        let Some(first) = kinds.iter().find(|kind| first.contains(&kind.name)) else { return };
        for kind in kinds {
            let comparison = Comparison::of(&kind.times, &first.times);
            let request = format!("{prefix}{}", kind.name);
            self.report.add_response_times(ResponseTimes::new(request, &kind.times, comparison));
        }
    }
}

impl Kind {
    /// The request from the n-th client address, as a proxy forwards it.
    fn request_from(&self, n: usize) -> Vec<u8> {
        let address = format!("2001:db8:{n:x}::1");
        let headers = [("X-Tenant-ID", self.tenant.as_str()), ("X-Forwarded-For", address.as_str())];
        request("POST", self.path, &headers, &self.body)
    }
}

fn login(name: &'static str, tenant: &str, email: &str, password: &str) -> anyhow::Result<Kind> {
    let body = serde_json::to_vec(&Login { email: email.to_owned(), password: Secret::new(password) })?;
    Ok(Kind { name, path: LOGIN, tenant: tenant.to_owned(), body, times: Vec::new() })
}

fn address(name: &str) -> String {
    format!("{name}@timing.example")
}
