//! Who asks: the first tenant's administrator, who accepts their invite and logs in, and a member whom they invite.

use std::net::{Ipv6Addr, SocketAddr};

use anyhow::Context as _;
use contract::identity::{AcceptInvite, AcceptedInvite, Delivery, Invite, InviteUser, Login};
use contract::session::IssuedSession;
use contract::{Role, Secret};
use tenancy::{TenantId, UserId};

use crate::http::{Connection, request};
use crate::system::System;

pub(crate) const PASSWORD: &str = "correct-horse-battery-9";
/// Enough that nobody logs in more often at once than people do.
const MEMBERS: usize = 32;

/// Somebody with a session.
pub(crate) struct Person {
    session: IssuedSession,
    email: String,
}

/// Accepts the invite that the system shows, and logs in.
pub(crate) async fn first_admin(system: &System) -> anyhow::Result<Person> {
    let token = system.run_file.admin_invite_token.as_deref().context("a new system has an invite")?;
    accept(system.address, Secret::new(token)).await
}

/// Accepts an invite, and logs in.
pub(crate) async fn accept(address: SocketAddr, token: Secret) -> anyhow::Result<Person> {
    let body = serde_json::to_vec(&AcceptInvite { token, password: Secret::new(PASSWORD) })?;
    let accept = request("POST", "/api/v1/users/accept-invite", &[], &body);
    let mut connection = Connection::open(address).await?;
    let user: AcceptedInvite = serde_json::from_slice(connection.exchange(&accept).await?.expect(201)?)?;
    let login = login(&user.email, &user.tenant_id, Ipv6Addr::LOCALHOST)?;
    let session = serde_json::from_slice(connection.exchange(&login).await?.expect(200)?)?;
    Ok(Person { session, email: user.email })
}

fn login(email: &str, tenant: &TenantId, from: Ipv6Addr) -> anyhow::Result<Vec<u8>> {
    let body = serde_json::to_vec(&Login { email: email.to_owned(), password: Secret::new(PASSWORD) })?;
    let headers = [("X-Tenant-ID", tenant.as_str()), ("X-Forwarded-For", &from.to_string())];
    Ok(request("POST", "/api/v1/auth/password/login", &headers, &body))
}

impl Person {
    /// Others of the tenant. A user has so many sessions and no more: whoever logs in all the time loses the older ones, and
    /// must not be who sends.
    pub(crate) async fn invite_members(&self, system: &System) -> anyhow::Result<Vec<Self>> {
        let mut members = Vec::new();
        for n in 0..MEMBERS {
            members.push(self.invite(system, &format!("member-{n}@bench.example")).await?);
        }
        Ok(members)
    }

    /// Anybody else of the tenant, who accepts at once.
    pub(crate) async fn invite(&self, system: &System, email: &str) -> anyhow::Result<Self> {
        let invite = InviteUser { email: email.to_owned(), role: Role::Member, delivery: Delivery::Response };
        let invite = self.post("/api/v1/users/invite", &serde_json::to_vec(&invite)?);
        let mut connection = Connection::open(system.address).await?;
        let invite: Invite = serde_json::from_slice(connection.exchange(&invite).await?.expect(201)?)?;
        accept(system.address, invite.token.context("an invite by response has its token")?).await
    }

    /// Whose events they are.
    pub(crate) fn tenant_id(&self) -> &TenantId {
        &self.session.tenant_id
    }

    /// Who sends them.
    pub(crate) fn user_id(&self) -> UserId {
        self.session.user_id
    }

    /// Logs in once more, from the n-th address of many.
    pub(crate) fn login_from(&self, n: u16) -> anyhow::Result<Vec<u8>> {
        login(&self.email, &self.session.tenant_id, Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 1))
    }

    /// Asks who the session is.
    pub(crate) fn check(&self) -> Vec<u8> {
        self.with_bearer("GET", "/api/v1/auth/session", b"")
    }

    /// Sends a body with the session as bearer.
    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Vec<u8> {
        self.with_bearer("POST", path, body)
    }

    /// Sends any request with the session as bearer.
    pub(crate) fn with_bearer(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.session.session_id.expose());
        request(method, path, &[("Authorization", &bearer)], body)
    }
}
