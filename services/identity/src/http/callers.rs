//! Extractors for the callers of a route: the signature of a handler shows who may call it. A handler names its caller first, so a
//! caller without access gets the same 401 or 403 for every id, also for a malformed one.

use audit::Actor;
use authn::{AnyCaller, AnyUser, Caller, TenantCaller};
use axum::extract::FromRequestParts;
use contract::{ProblemKind, Scope};
use http::header::AUTHORIZATION;
use http::request::Parts;
use service::Problem;
use tenancy::{TenantId, UserId};

use crate::app::App;
use crate::app::invites::InviteRights;

/// The user if the request has a bearer credential, which must then be an active session.
pub(super) struct OptionalUser(pub(super) Option<Caller>);

impl FromRequestParts<App> for OptionalUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(Self(None));
        }
        AnyUser::from_request_parts(parts, app).await.map(|AnyUser(caller)| Self(Some(caller)))
    }
}

/// A caller that may invite: an administrator, an API key with `users:write`, or the platform administrator.
pub(super) struct Inviter {
    pub(super) tenant_id: TenantId,
    pub(super) rights: InviteRights,
    pub(super) actor: Actor,
}

impl FromRequestParts<App> for Inviter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let TenantCaller { tenant_id, actor, caller } = TenantCaller::from_request_parts(parts, app).await?;
        let rights = match caller {
            None => InviteRights::Everyone,
            Some(caller) => {
                caller.require(Scope::UsersWrite)?;
                match caller.require_recent_login(app.clock.now()) {
                    Ok(()) => InviteRights::Everyone,
                    Err(_) if caller.is_admin() => InviteRights::EveryoneAfterLogin,
                    Err(_) => InviteRights::Members,
                }
            }
        };
        Ok(Self { tenant_id, rights, actor })
    }
}

/// A caller that may read tenants: a user only its own tenant, the platform administrator each tenant (`None`).
pub(super) struct TenantReader(pub(super) Option<TenantId>);

impl FromRequestParts<App> for TenantReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, app).await? {
            AnyCaller::PlatformAdmin => Ok(Self(None)),
            AnyCaller::Caller(caller) => {
                caller.require_user()?;
                Ok(Self(Some(caller.tenant_id().clone())))
            }
        }
    }
}

/// A caller that may read users of the tenant: an administrator, an API key with `users:read` or the platform administrator each user, a
/// member `only` itself.
pub(super) struct UserReader {
    pub(super) tenant_id: TenantId,
    pub(super) only: Option<UserId>,
}

impl FromRequestParts<App> for UserReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let TenantCaller { tenant_id, caller, .. } = TenantCaller::from_request_parts(parts, app).await?;
        let member = caller.as_ref().filter(|caller| !caller.is_admin());
        let only = member.and_then(Caller::user_id);
        if let Some(caller) = caller
            && only.is_none()
        {
            caller.require(Scope::UsersRead)?;
        }
        Ok(Self { tenant_id, only })
    }
}

/// A caller that may list users and invites: an administrator, an API key with `users:read`, or the platform administrator.
pub(super) struct UsersReader(pub(super) TenantId);

impl FromRequestParts<App> for UsersReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let TenantCaller { tenant_id, caller, .. } = TenantCaller::from_request_parts(parts, app).await?;
        if let Some(caller) = caller {
            caller.require(Scope::UsersRead)?;
        }
        Ok(Self(tenant_id))
    }
}

/// A caller that may change a user or reset its factors: an administrator of the tenant, or the platform administrator.
pub(super) struct UserManager {
    pub(super) tenant_id: TenantId,
    pub(super) actor: Actor,
    /// `reauthentication_required` for an administrator without a recent login.
    pub(super) recent_login: Result<(), Problem>,
}

impl UserManager {
    /// Requires that the caller may change the role of a user.
    pub(super) fn require_role_change(&self) -> Result<(), Problem> {
        if self.actor == Actor::PlatformAdmin {
            // Only the administrators of a tenant change roles.
            let detail = "The platform administrator can change the status only. Omit `role`.";
            return Err(Problem::new(ProblemKind::Forbidden).detail(detail));
        }
        self.recent_login.clone()
    }
}

impl FromRequestParts<App> for UserManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let TenantCaller { tenant_id, actor, caller } = TenantCaller::from_request_parts(parts, app).await?;
        let recent_login = match caller {
            None => Ok(()),
            Some(caller) if caller.is_admin() => caller.require_recent_login(app.clock.now()),
            Some(_) => return Err(ProblemKind::Forbidden.into()),
        };
        Ok(Self { tenant_id, actor, recent_login })
    }
}
