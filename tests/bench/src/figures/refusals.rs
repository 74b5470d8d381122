//! Whether the time of an answer tells who has an account: refused logins of every kind, and resets for somebody and for
//! nobody, in turns. Each attempt comes from an address of its own, so that none waits for another's failures.

use std::time::{Duration, Instant};

use contract::Secret;
use contract::identity::{CreateTenant, Delivery, Invite, Login, RequestReset, Tenant};
use serde_json::json;

use super::{Bench, milliseconds};
use crate::http::{Connection, request};
use crate::likeness::Likeness;
use crate::person::PASSWORD;
use crate::report::Alike;

/// Fewer than lock an account.
const ROUNDS: usize = 60;
const RESET_ROUNDS: usize = 200;
/// As many failures in a row as lock an account.
const LOCKS: usize = 100;
/// The mails of a reset are written after the answer, by the same process.
const PAUSE: Duration = Duration::from_millis(5);
const WRONG: &str = "wrong-password-altogether";
const LOGIN: &str = "/api/v1/auth/password/login";
const RESET: &str = "/api/v1/auth/password/reset";

/// A request of a kind, but for where it comes from.
struct Kind {
    name: &'static str,
    path: &'static str,
    tenant: String,
    body: Vec<u8>,
    times: Vec<f64>,
}

impl Bench<'_> {
    pub(crate) async fn refusals(&mut self) -> anyhow::Result<()> {
        let mut logins = self.refused_logins().await?;
        let rounds = self.rounds(ROUNDS).min(LOCKS - 1);
        self.in_turns(&mut logins, rounds, 401).await?;
        self.tell("refused login: ", &logins);
        let mut resets = self.resets()?;
        self.in_turns(&mut resets, self.rounds(RESET_ROUNDS), 204).await?;
        self.tell("reset: ", &resets);
        Ok(())
    }

    /// Whoever can be refused; the first kind is what the others are compared with.
    async fn refused_logins(&self) -> anyhow::Result<Vec<Kind>> {
        let tenant = self.person.tenant_id().as_str();
        for name in ["wrong", "empty", "locked", "disabled"] {
            self.person.invite(self.system, &address(name)).await?;
        }
        self.disable("disabled").await?;
        let invited = json!({ "email": address("invited"), "delivery": "response" }).to_string();
        let mut connection = Connection::open(self.system.address).await?;
        let invite = self.person.post("/api/v1/users/invite", invited.as_bytes());
        let _: Invite = serde_json::from_slice(connection.exchange(&invite).await?.expect(201)?)?;
        self.suspended_tenant().await?;
        let kind =
            |name, tenant: &str, who: &str, password: &str| login(name, tenant, &address(who), password);
        let kinds = vec![
            kind("wrong password", tenant, "wrong", WRONG)?,
            kind("empty password", tenant, "empty", "")?,
            kind("unknown e-mail", tenant, "unknown", PASSWORD)?,
            kind("unknown tenant", "unknown", "wrong", PASSWORD)?,
            kind("suspended tenant", "suspended", "admin", PASSWORD)?,
            kind("invited", tenant, "invited", PASSWORD)?,
            kind("disabled", tenant, "disabled", PASSWORD)?,
            kind("locked", tenant, "locked", PASSWORD)?,
        ];
        let lock = login("lock", tenant, &address("locked"), WRONG)?;
        for n in 0..LOCKS {
            connection.exchange(&lock.sent_from(n)).await?.expect(401)?;
        }
        Ok(kinds)
    }

    async fn disable(&self, name: &str) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.system.address).await?;
        let path = format!("/api/v1/users?email={}", address(name));
        let found = self.person.with_bearer("GET", &path, b"");
        let found: serde_json::Value =
            serde_json::from_slice(connection.exchange(&found).await?.expect(200)?)?;
        let path = format!("/api/v1/users/{}", found["items"][0]["user_id"].as_str().unwrap_or_default());
        let disable = self.person.with_bearer("PATCH", &path, br#"{"status":"disabled"}"#);
        connection.exchange(&disable).await?.expect(200)?;
        Ok(())
    }

    async fn suspended_tenant(&self) -> anyhow::Result<()> {
        let operator = std::fs::read_to_string(&self.system.run_file.platform_token_file)?;
        let bearer = format!("Bearer {}", operator.trim());
        let headers = [("Authorization", bearer.as_str())];
        let create = CreateTenant {
            tenant_id: "suspended".parse()?,
            display_name: "Suspended".to_owned(),
            admin_email: Some(address("admin")),
            delivery: Delivery::Response,
            quota: None,
        };
        let create = request("POST", "/api/v1/tenants", &headers, &serde_json::to_vec(&create)?);
        let mut connection = Connection::open(self.system.address).await?;
        let tenant: Tenant = serde_json::from_slice(connection.exchange(&create).await?.expect(201)?)?;
        let token = tenant.invite.and_then(|invite| invite.token).unwrap_or_else(|| Secret::new(""));
        crate::person::accept(self.system.address, token).await?;
        let suspend = request("PATCH", "/api/v1/tenants/suspended", &headers, br#"{"status":"suspended"}"#);
        connection.exchange(&suspend).await?.expect(200)?;
        Ok(())
    }

    fn resets(&self) -> anyhow::Result<Vec<Kind>> {
        let tenant = self.person.tenant_id().as_str();
        let kind = |name, email: String| {
            let body = serde_json::to_vec(&RequestReset { email })?;
            anyhow::Ok(Kind { name, path: RESET, tenant: tenant.to_owned(), body, times: Vec::new() })
        };
        Ok(vec![kind("known e-mail", address("wrong"))?, kind("unknown e-mail", address("unknown"))?])
    }

    /// One of each kind a round, each round in another order.
    async fn in_turns(&self, kinds: &mut [Kind], rounds: usize, status: u16) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.system.address).await?;
        for round in 0..rounds {
            kinds.rotate_left(1);
            if round % 2 == 1 {
                kinds.reverse();
            }
            for kind in &mut *kinds {
                tokio::time::sleep(PAUSE).await;
                let asked = kind.sent_from(1000 + round);
                let begun = Instant::now();
                connection.exchange(&asked).await?.expect(status)?;
                kind.times.push(milliseconds(begun.elapsed()));
            }
        }
        Ok(())
    }

    fn tell(&mut self, what: &'static str, kinds: &[Kind]) {
        let first = ["wrong password", "known e-mail"];
        let Some(first) = kinds.iter().find(|kind| first.contains(&kind.name)) else { return };
        for kind in kinds {
            let likeness = Likeness::of(&kind.times, &first.times);
            self.report.add_alike(Alike::new(format!("{what}{}", kind.name), &kind.times, likeness));
        }
    }
}

impl Kind {
    /// The bytes of the request, as a proxy passes them on from an address.
    fn sent_from(&self, n: usize) -> Vec<u8> {
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
    format!("{name}@refusals.example")
}
