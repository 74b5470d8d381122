//! `/auth/password`, and the JSON body of routes that verify a password.

use std::net::IpAddr;
use std::time::Duration;

use authn::page_session_cookie;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts as _, Request, State};
use contract::ProblemKind;
use contract::identity::{ChangePassword, ConfirmReset, InspectReset, InspectedReset, Login, RequestReset};
use contract::session::{IssuedSession, PageSession, SessionMethod};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, StatusCode};
use ratelimit::source;
use serde::de::DeserializeOwned;
use service::Problem;
use service::http::{ClientAddress, JsonBody, TenantHeader, UserHeader, user_agent};
use tokio::time::timeout;

use super::callers::OptionalUser;
use crate::app::App;
use crate::app::login::{Client, LoggedIn};

/// The response of a login.
pub(super) trait LoginResponse {
    /// How the client keeps the session.
    const METHOD: SessionMethod;

    fn new(app: &App, login: LoggedIn) -> Self;
}

impl LoginResponse for Json<IssuedSession> {
    const METHOD: SessionMethod = SessionMethod::Password;

    fn new(_: &App, login: LoggedIn) -> Self {
        Json(login.session)
    }
}

/// The response of a login on the page of own sessions. The browser keeps the token in a cookie that scripts cannot read.
pub(super) type PageLogin = ([(HeaderName, String); 1], Json<PageSession>);

impl LoginResponse for PageLogin {
    const METHOD: SessionMethod = SessionMethod::Page;

    fn new(app: &App, LoggedIn { session, email }: LoggedIn) -> Self {
        let IssuedSession { session_id, user_id, tenant_id, expires_at, recovery_codes, .. } = session;
        let cookie = page_session_cookie(session_id.expose(), &app.config.public_url);
        let email = email.as_str().to_owned();
        ([(SET_COOKIE, cookie)], Json(PageSession { user_id, tenant_id, email, expires_at, recovery_codes }))
    }
}

/// `POST /auth/password/login` and `POST /pages/sessions/login`.
pub(super) async fn login<R: LoginResponse>(
    TenantHeader(tenant_id): TenantHeader,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    LimitedJson(login): LimitedJson<Login>,
) -> Result<R, Problem> {
    let client = client(address, &headers, R::METHOD);
    Ok(R::new(&app, app.log_in(&tenant_id, &login.email, login.password.expose(), client).await?))
}

pub(super) fn client(address: IpAddr, headers: &HeaderMap, method: SessionMethod) -> Client {
    Client { method, address, user_agent: user_agent(headers) }
}

/// `POST /auth/password/change`: requires the current password; a bearer credential must be a session of the same user.
pub(super) async fn change(
    TenantHeader(tenant_id): TenantHeader,
    UserHeader(user_id): UserHeader,
    ClientAddress(address): ClientAddress,
    State(app): State<App>,
    request: Request,
) -> Result<StatusCode, Problem> {
    // The credential is looked up before the body is read, so the request is counted on arrival.
    app.limiter.count(&app.config.rate_limits.login, source(address)).await?;
    let (mut parts, body) = request.into_parts();
    let OptionalUser(caller) = OptionalUser::from_request_parts(&mut parts, &app).await?;
    let request = Request::from_parts(parts, body);
    let JsonBody(request) = JsonBody::<ChangePassword>::from_request(request, &app).await?;
    app.change_password(&tenant_id, user_id, caller.as_ref(), &request, address).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shorter than the timeout of a request, after which the response would not be 204.
const RESET_TIMEOUT: Duration = Duration::from_secs(9);

/// `POST /auth/password/reset`: always 204. An invalid request is counted and logged.
pub(super) async fn reset(State(app): State<App>, request: Request) -> StatusCode {
    let requested = timeout(RESET_TIMEOUT, request_reset(&app, request)).await;
    if let Err(problem) = requested.unwrap_or_else(|_| Err(ProblemKind::DependencyUnavailable.into())) {
        app.resets_dropped.inc();
        tracing::debug!(code = problem.kind().code(), "password reset request dropped");
    }
    StatusCode::NO_CONTENT
}

async fn request_reset(app: &App, request: Request) -> Result<(), Problem> {
    let (mut parts, body) = request.into_parts();
    let tenant = TenantHeader::from_request_parts(&mut parts, app).await;
    let TenantHeader(tenant_id) = tenant?;
    let Ok(ClientAddress(address)) = ClientAddress::from_request_parts(&mut parts, app).await;
    let JsonBody(RequestReset { email }) =
        JsonBody::<RequestReset>::from_request(Request::from_parts(parts, body), app).await?;
    app.request_reset(&tenant_id, &email, address).await
}

/// `POST /auth/password/reset/inspect`: a caller with the reset token.
pub(super) async fn inspect_reset(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<InspectReset>,
) -> Result<Json<InspectedReset>, Problem> {
    Ok(Json(app.inspect_reset(request.token.expose(), address).await?))
}

/// `POST /auth/password/reset/confirm`: a caller with the reset token.
pub(super) async fn confirm_reset(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<ConfirmReset>,
) -> Result<StatusCode, Problem> {
    app.confirm_reset(&request, address).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The JSON body of a route that verifies a password, counted by the limit of logins. The request is counted after its body
/// arrived and before anything is looked up or hashed, so that a request that is shed by a full hash queue also counts. If
/// the counter is unavailable, the request fails with 503.
pub(super) struct LimitedJson<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequest<App> for LimitedJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Ok(ClientAddress(address)) = ClientAddress::from_request_parts(&mut parts, app).await;
        let JsonBody(body) = JsonBody::<T>::from_request(Request::from_parts(parts, body), app).await?;
        app.limiter.count(&app.config.rate_limits.login, source(address)).await?;
        Ok(Self(body))
    }
}
