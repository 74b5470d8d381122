//! `/auth/session` and `/auth/sessions`: the caller's own credential, and the sessions of a user.

use std::sync::Arc;

use authn::{AnyUser, Caller, CredentialVerifier};
use axum::Json;
use axum::extract::{FromRef, FromRequestParts, State};
use contract::internal::Credential;
use contract::session::{RevokeSessions, Session, SubjectType, Whoami};
use contract::{Page, ProblemKind};
use http::StatusCode;
use http::request::Parts;
use service::Problem;
use service::http::Filters;
use service::http::Id;
use service::http::Paging;
use service::http::{SessionHeader, UserHeader};
use tenancy::SessionId;

use crate::app::App;

/// `GET /auth/session`: the owner, scopes and expiry of the caller's credential.
pub(super) async fn whoami(caller: Caller) -> Result<Json<Whoami>, Problem> {
    let scopes = caller.scopes().to_vec();
    let subject = caller.subject();
    let (tenant_id, expires_at) = (subject.tenant_id.clone(), subject.expires_at);
    Ok(Json(match &subject.credential {
        Credential::Session { user_id, role, method, amr, idle_expires_at, .. } => Whoami {
            subject_type: SubjectType::User,
            user_id: Some(*user_id),
            key_id: None,
            tenant_id,
            role: Some(*role),
            scopes,
            method: Some(*method),
            amr: amr.clone(),
            expires_at,
            idle_expires_at: Some(*idle_expires_at),
        },
        // Only ingest accepts tokens of service accounts.
        Credential::ServiceAccount { .. } => return Err(ProblemKind::CredentialInvalid.into()),
        Credential::ApiKey { key_id, .. } => Whoami {
            subject_type: SubjectType::ApiKey,
            user_id: None,
            key_id: Some(*key_id),
            tenant_id,
            role: None,
            scopes,
            method: None,
            amr: Vec::new(),
            expires_at,
            idle_expires_at: None,
        },
    }))
}

/// A user with the bearer token of a session or with the cookie of the page of own sessions.
pub(super) struct PageCaller(Caller);

impl FromRequestParts<App> for PageCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let verifier = <Arc<dyn CredentialVerifier>>::from_ref(app);
        match Caller::from_page(parts, &verifier, &app.public_url).await? {
            Some(caller) => Ok(Self(caller)),
            None => AnyUser::from_request_parts(parts, app).await.map(|AnyUser(caller)| Self(caller)),
        }
    }
}

/// `GET /auth/sessions`: the caller's own sessions, or for an administrator those of any user of the tenant.
pub(super) async fn list(
    State(app): State<App>,
    PageCaller(caller): PageCaller,
    UserHeader(user_id): UserHeader,
    paging: Paging<SessionId>,
) -> Result<Json<Page<Session>>, Problem> {
    Ok(Json(app.list_sessions(&caller, user_id, &paging).await?))
}

/// `POST /auth/sessions/logout`: the caller sends the raw session token.
pub(super) async fn log_out(
    State(app): State<App>,
    SessionHeader(token): SessionHeader,
) -> Result<StatusCode, Problem> {
    app.log_out(&token).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /auth/sessions/{session_id}`: requires the owner of the session or an administrator.
pub(super) async fn revoke(
    State(app): State<App>,
    PageCaller(caller): PageCaller,
    Id(session_id): Id<SessionId>,
) -> Result<StatusCode, Problem> {
    app.revoke_session(&caller, session_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /auth/sessions`: all sessions of the user that the header names.
pub(super) async fn revoke_all(
    State(app): State<App>,
    PageCaller(caller): PageCaller,
    UserHeader(user_id): UserHeader,
    Filters(RevokeSessions { keep_current }): Filters<RevokeSessions>,
) -> Result<StatusCode, Problem> {
    app.revoke_all_sessions(&caller, user_id, keep_current).await?;
    Ok(StatusCode::NO_CONTENT)
}
