//! Who may call what, as extractors: a handler's signature shows what it demands.

use audit::Actor;
use authn::{Bearer, Caller, PlatformAdmin, bearer};
use axum::extract::FromRequestParts;
use contract::identity::Delivery;
use contract::{ProblemKind, Role, Scope};
use hashing::TokenKind;
use http::header::AUTHORIZATION;
use http::request::Parts;
use service::Problem;
use service::http::TenantHeader;
use tenancy::TenantScope;

use crate::app::App;

/// The operator, or a caller who belongs to a tenant.
pub(super) enum Anybody {
    PlatformAdmin,
    Caller(Caller),
}

impl FromRequestParts<App> for Anybody {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match bearer(&parts.headers, &[TokenKind::PlatformAdmin]) {
            Bearer::Token(_) => {
                PlatformAdmin::from_request_parts(parts, app).await.map(|_| Self::PlatformAdmin)
            }
            Bearer::Missing | Bearer::Malformed => {
                Caller::from_request_parts(parts, app).await.map(Self::Caller)
            }
        }
    }
}

/// A caller, where a bearer is sent at all; one that is sent must be live.
pub(super) struct OptionalCaller(pub(super) Option<Caller>);

impl FromRequestParts<App> for OptionalCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(Self(None));
        }
        Caller::from_request_parts(parts, app).await.map(|caller| Self(Some(caller)))
    }
}

/// Whoever may invite into a tenant: its administrators, its keys with `users:write`, and the operator who names it.
pub(super) struct Inviter {
    pub(super) scope: TenantScope,
    /// A key invites members only: it shall not make itself an administrator.
    pub(super) highest_role: Role,
    /// A key never sees a token: it shall not make itself a person.
    sees_tokens: bool,
    pub(super) actor: Actor,
}

impl FromRequestParts<App> for Inviter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Anybody::from_request_parts(parts, app).await? {
            Anybody::PlatformAdmin => {
                let TenantHeader(tenant_id) = TenantHeader::from_request_parts(parts, app).await?;
                let scope = TenantScope::of_platform_admin(tenant_id);
                Ok(Self { scope, highest_role: Role::Admin, sees_tokens: true, actor: Actor::PlatformAdmin })
            }
            Anybody::Caller(caller) => {
                caller.require(Scope::UsersWrite)?;
                let sees_tokens = caller.is_admin();
                let highest_role = if sees_tokens { Role::Admin } else { Role::Member };
                Ok(Self { scope: caller.scope(), highest_role, sees_tokens, actor: Actor::from(&caller) })
            }
        }
    }
}

/// Whoever may see a tenant's invites: its administrators, its keys with `users:read`, and the operator who names it.
pub(super) struct InviteReader(pub(super) TenantScope);

impl FromRequestParts<App> for InviteReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Anybody::from_request_parts(parts, app).await? {
            Anybody::PlatformAdmin => {
                let TenantHeader(tenant_id) = TenantHeader::from_request_parts(parts, app).await?;
                Ok(Self(TenantScope::of_platform_admin(tenant_id)))
            }
            Anybody::Caller(caller) => {
                caller.require(Scope::UsersRead)?;
                Ok(Self(caller.scope()))
            }
        }
    }
}

/// Whoever may change how a user stands: the tenant's administrators, and the operator who names it.
pub(super) struct UserManager {
    pub(super) scope: TenantScope,
    /// The operator disables and enables, and leaves roles to the tenant.
    pub(super) may_change_role: bool,
    pub(super) actor: Actor,
}

impl FromRequestParts<App> for UserManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Anybody::from_request_parts(parts, app).await? {
            Anybody::PlatformAdmin => {
                let TenantHeader(tenant_id) = TenantHeader::from_request_parts(parts, app).await?;
                let scope = TenantScope::of_platform_admin(tenant_id);
                Ok(Self { scope, may_change_role: false, actor: Actor::PlatformAdmin })
            }
            Anybody::Caller(caller) if caller.is_admin() => {
                Ok(Self { scope: caller.scope(), may_change_role: true, actor: Actor::from(&caller) })
            }
            Anybody::Caller(_) => Err(ProblemKind::Forbidden.into()),
        }
    }
}

impl Inviter {
    /// Demands the right to give this role.
    pub(super) fn may_give(&self, role: Role) -> Result<(), Problem> {
        if role <= self.highest_role { Ok(()) } else { Err(ProblemKind::Forbidden.into()) }
    }

    /// Demands the right to get the token this way.
    pub(super) fn may_choose(&self, delivery: Delivery) -> Result<(), Problem> {
        if delivery == Delivery::Email || self.sees_tokens {
            return Ok(());
        }
        let detail = "A key does not get to see the token of an invite. Leave `delivery` out, so that it is mailed, or ask an administrator.";
        Err(Problem::new(ProblemKind::Forbidden).detail(detail))
    }
}
