//! Users of the measured system: the administrator of the first tenant, and invited members.

use std::net::{Ipv6Addr, SocketAddr};

use anyhow::Context as _;
use contract::factors::{ConfirmTotp, NewTotp, UseFactor};
use contract::identity::{
    AcceptInvite, AcceptedInvite, CreateTenant, Delivery, Invite, InviteUser, Login, SecondFactorPolicy,
    Tenant,
};
use contract::session::IssuedSession;
use contract::{Problem, Role, Secret};
use tenancy::{TenantId, UserId};
use testkit::{PASSWORD, totp_after};

use crate::http::{Connection, request};
use crate::system::System;

/// Enough members that one user does not log in much more often than a real one.
const MEMBERS: usize = 32;
/// The path of a session check.
const SESSION: &str = "/api/v1/auth/session";

/// A user who is logged in.
pub(crate) struct BenchUser {
    session: IssuedSession,
    email: String,
}

/// Accepts the invite in the run file and logs in.
pub(crate) async fn first_admin(system: &System) -> anyhow::Result<BenchUser> {
    let token = system.run_file.admin_invite_token.as_deref().context("the run file has no invite")?;
    accept_invite(system.address, Secret::new(token)).await
}

/// Creates a tenant. Its administrator accepts the invite and logs in.
pub(crate) async fn tenant_admin(system: &System, tenant: String) -> anyhow::Result<BenchUser> {
    let create = CreateTenant {
        tenant_id: tenant.parse()?,
        display_name: tenant,
        admin_email: Some("admin@bench.example".to_owned()),
        delivery: Delivery::Response,
        quota: None,
        second_factor: SecondFactorPolicy::Optional,
        password_min_length: None,
        passkey_login: None,
    };
    let create = system.platform_request("POST", "/api/v1/tenants", &serde_json::to_vec(&create)?)?;
    let mut connection = Connection::open(system.address).await?;
    let created: Tenant = serde_json::from_slice(connection.exchange(&create).await?.expect(201)?)?;
    let invite = created.invite.context("the response has no invite")?;
    accept_invite(system.address, invite.token.context("the response has no invite token")?).await
}

/// Accepts an invite and logs in.
pub(crate) async fn accept_invite(address: SocketAddr, token: Secret) -> anyhow::Result<BenchUser> {
    let body = serde_json::to_vec(&AcceptInvite { token, password: Secret::new(PASSWORD) })?;
    let accept = request("POST", "/api/v1/users/accept-invite", &[], &body);
    let mut connection = Connection::open(address).await?;
    let user: AcceptedInvite = serde_json::from_slice(connection.exchange(&accept).await?.expect(201)?)?;
    let login = login(&user.email, &user.tenant_id, Ipv6Addr::LOCALHOST)?;
    let session = serde_json::from_slice(connection.exchange(&login).await?.expect(200)?)?;
    Ok(BenchUser { session, email: user.email })
}

fn login(email: &str, tenant: &TenantId, from: Ipv6Addr) -> anyhow::Result<Vec<u8>> {
    let body = serde_json::to_vec(&Login { email: email.to_owned(), password: Secret::new(PASSWORD) })?;
    let headers = [("X-Tenant-ID", tenant.as_str()), ("X-Forwarded-For", &from.to_string())];
    Ok(request("POST", "/api/v1/auth/password/login", &headers, &body))
}

impl BenchUser {
    /// Invites the members who log in during the measurements. The sessions of a user are limited: repeated logins revoke the
    /// oldest session, so the user who sends events must not log in repeatedly.
    pub(crate) async fn invite_members(&self, system: &System) -> anyhow::Result<Vec<Self>> {
        let mut members = Vec::new();
        for n in 0..MEMBERS {
            members.push(self.invite(system, &format!("member-{n}@bench.example")).await?);
        }
        Ok(members)
    }

    /// Invites a member, who accepts immediately.
    pub(crate) async fn invite(&self, system: &System, email: &str) -> anyhow::Result<Self> {
        let invite = InviteUser { email: email.to_owned(), role: Role::Member, delivery: Delivery::Response };
        let invite = self.post("/api/v1/users/invite", &serde_json::to_vec(&invite)?);
        let mut connection = Connection::open(system.address).await?;
        let invite: Invite = serde_json::from_slice(connection.exchange(&invite).await?.expect(201)?)?;
        accept_invite(system.address, invite.token.context("the response has no invite token")?).await
    }

    /// The tenant of the user.
    pub(crate) fn tenant_id(&self) -> &TenantId {
        &self.session.tenant_id
    }

    /// The user id.
    pub(crate) fn user_id(&self) -> UserId {
        self.session.user_id
    }

    /// The session token.
    pub(crate) fn token(&self) -> &Secret {
        &self.session.session_id
    }

    /// A login request from the n-th client address.
    pub(crate) fn login_from(&self, n: u16) -> anyhow::Result<Vec<u8>> {
        login(&self.email, &self.session.tenant_id, client_address(n))
    }

    /// Sets up an authenticator app. Returns its secret. The code of the step before the current one is used.
    pub(crate) async fn set_up_app(&self, connection: &mut Connection) -> anyhow::Result<String> {
        let set_up = self.post("/api/v1/auth/factors/totp", b"{}");
        let app: NewTotp = serde_json::from_slice(connection.exchange(&set_up).await?.expect(201)?)?;
        let secret = app.secret.expose().to_owned();
        let confirm = serde_json::to_vec(&ConfirmTotp { code: Secret::new(totp_after(&secret, -1)) })?;
        let confirm = self.post("/api/v1/auth/factors/totp/confirm", &confirm);
        connection.exchange(&confirm).await?.expect(200)?;
        Ok(secret)
    }

    /// Logs in from the n-th client address with the code of a step after the current one.
    pub(crate) async fn log_in_with_code(
        &self,
        connection: &mut Connection,
        n: u16,
        secret: &str,
        step: i64,
    ) -> anyhow::Result<()> {
        let response = connection.exchange(&self.login_from(n)?).await?;
        let problem: Problem = serde_json::from_slice(response.expect(403)?)?;
        let challenge = problem.second_factor.context("the response has no challenge")?.challenge;
        let code = Some(Secret::new(totp_after(secret, step)));
        let (recovery_code, assertion, credential, name) = (None, None, None, None);
        let answer = UseFactor { challenge, code, recovery_code, assertion, credential, name };
        let answer = serde_json::to_vec(&answer)?;
        let headers = [
            ("X-Tenant-ID", self.session.tenant_id.as_str()),
            ("X-Forwarded-For", &client_address(n).to_string()),
        ];
        let answer = request("POST", "/api/v1/auth/second-factor", &headers, &answer);
        connection.exchange(&answer).await?.expect(200)?;
        Ok(())
    }

    /// A check of the session from the n-th client address.
    pub(crate) fn session_check_from(&self, n: u16) -> Vec<u8> {
        let (bearer, from) = (format!("Bearer {}", self.token().expose()), client_address(n).to_string());
        request("GET", SESSION, &[("Authorization", &bearer), ("X-Forwarded-For", &from)], b"")
    }

    /// A check of the session.
    pub(crate) fn session_check(&self) -> Vec<u8> {
        session_check(self.token().expose())
    }

    /// A POST request with the session token.
    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Vec<u8> {
        self.with_bearer("POST", path, body)
    }

    /// A request with the session token.
    pub(crate) fn with_bearer(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        with_bearer(self.token().expose(), method, path, body)
    }
}

/// A check of the session with this token (`GET /auth/session`).
pub(crate) fn session_check(token: &str) -> Vec<u8> {
    with_bearer(token, "GET", SESSION, b"")
}

/// An address in the n-th network: limits count IPv6 addresses by their /64 network.
fn client_address(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 1)
}

fn with_bearer(token: &str, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    request(method, path, &[("Authorization", &format!("Bearer {token}"))], body)
}
