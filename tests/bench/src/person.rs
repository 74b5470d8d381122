//! The first tenant's administrator, who accepts their invite and logs in, as the greeting of the system says.

use anyhow::Context as _;
use contract::Secret;
use contract::identity::{AcceptInvite, Login};
use contract::session::IssuedSession;
use tenancy::TenantId;

use crate::http::{Connection, request};
use crate::system::System;

const PASSWORD: &str = "correct-horse-battery-9";

/// Somebody with a session.
pub(crate) struct Person {
    session: IssuedSession,
    email: String,
}

/// Accepts the invite that the system shows, and logs in.
pub(crate) async fn first_admin(system: &System) -> anyhow::Result<Person> {
    let facts = &system.facts;
    let invite = facts.admin_invite_token.as_deref().context("a new system has an invite")?;
    let accept = AcceptInvite { token: Secret::new(invite), password: Secret::new(PASSWORD) };
    let accept = request("POST", "/api/v1/users/accept-invite", &[], &serde_json::to_vec(&accept)?);
    let mut connection = Connection::open(system.address).await?;
    connection.exchange(&accept).await?.expect(201)?;
    let login = login_request(&facts.admin_email, &facts.tenant)?;
    let session = serde_json::from_slice(connection.exchange(&login).await?.expect(200)?)?;
    Ok(Person { session, email: facts.admin_email.clone() })
}

fn login_request(email: &str, tenant: &str) -> anyhow::Result<Vec<u8>> {
    let login = Login { email: email.to_owned(), password: Secret::new(PASSWORD) };
    let body = serde_json::to_vec(&login)?;
    Ok(request("POST", "/api/v1/auth/password/login", &[("X-Tenant-ID", tenant)], &body))
}

impl Person {
    pub(crate) fn tenant_id(&self) -> &TenantId {
        &self.session.tenant_id
    }

    /// Logs in once more.
    pub(crate) fn login(&self) -> anyhow::Result<Vec<u8>> {
        login_request(&self.email, self.session.tenant_id.as_str())
    }

    /// Asks who the session is.
    pub(crate) fn check(&self) -> Vec<u8> {
        self.with_bearer("GET", "/api/v1/auth/session", b"")
    }

    /// Sends a body with the session as bearer.
    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Vec<u8> {
        self.with_bearer("POST", path, body)
    }

    fn with_bearer(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.session.session_id.expose());
        request(method, path, &[("Authorization", &bearer)], body)
    }
}
