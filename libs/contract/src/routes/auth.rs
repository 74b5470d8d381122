//! Credentials: passwords, sessions, device login and API keys.

use super::{Access, Header, Operation, PAGING, RateLimit, Route, RouteResponse, SchemaRef, routes};
use crate::device::{
    DecideDevice, DeviceCodes, DeviceErrorResponse, DeviceRequest, DeviceSession, InspectDevice, PollDevice,
    StartDevice,
};
use crate::identity::{ChangePassword, ConfirmReset, InspectReset, InspectedReset, Login, RequestReset};
use crate::session::{ApiKey, CreateApiKey};
use crate::session::{IssuedSession, PageSession, RevokeSessions, Session, Whoami};
use crate::{Page, ProblemKind};

/// Problems of a login with the password.
const LOGIN: &[ProblemKind] = &[
    ProblemKind::LoginFailed,
    ProblemKind::SecondFactorRequired,
    ProblemKind::SecondFactorSetupRequired,
    ProblemKind::Overloaded,
];

routes! {
    PASSWORDS = "Passwords", "Log in, change a password, reset a password.":

    /// Log in with e-mail and password
    ///
    /// Only this response contains the raw session token. Every failed login gets the same `login_failed`, whether or not
    /// the tenant and the account exist. The right password of a user with a second factor gets `second_factor_required` with a
    /// `challenge` for `POST /auth/second-factor`, and that of a user who must set one up `second_factor_setup_required` with a
    /// `challenge` for `POST /auth/second-factor/totp` or `POST /auth/second-factor/passkey`.
    LOG_IN = Operation::post("/auth/password/login")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant])
        .json::<Login>()
        .responses(&[RouteResponse::json::<IssuedSession>(200, "The session. Send `session_id` as `Authorization: Bearer`.")])
        .problems(LOGIN);

    /// Log in on the page of own sessions
    ///
    /// For the page `sessions` only. The response sets a cookie with a session of 15 minutes that can list and revoke sessions
    /// on that page. It is not a bearer credential.
    LOG_IN_ON_PAGE = Operation::post("/pages/sessions/login")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant])
        .json::<Login>()
        .responses(&[RouteResponse::json::<PageSession>(200, "The user of the session.")])
        .problems(LOGIN);

    /// Change a password
    ///
    /// Requires the current password; a wrong one is `login_failed`, whether or not the user exists. Revokes all sessions of
    /// the user, except the one sent as bearer. A user with a second factor must send the session of a recent login with it.
    CHANGE_PASSWORD = Operation::post("/auth/password/change")
        .access(&[Access::RequestSecret, Access::Owner])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant, Header::User])
        .json::<ChangePassword>()
        .responses(&[RouteResponse::empty(204, "The password was changed.")])
        .sets_password()
        .problems(&[
            ProblemKind::LoginFailed,
            ProblemKind::ReauthenticationRequired,
            ProblemKind::NotFound,
            ProblemKind::PasswordUnchanged,
            ProblemKind::Overloaded,
        ]);

    /// Request a password reset
    ///
    /// Always gets the same response, even if the request is malformed. If the account exists, it receives an e-mail with
    /// a single-use token.
    REQUEST_PASSWORD_RESET = Operation::post("/auth/password/reset")
        .access(&[Access::Public])
        .rate_limit(RateLimit::Reset)
        .headers(&[Header::Tenant])
        .json::<RequestReset>()
        .responses(&[RouteResponse::empty(204, "The request was received.")])
        .uniform_response();

    /// Get the account of a reset token
    ///
    /// Does not use up the token.
    INSPECT_PASSWORD_RESET = Operation::post("/auth/password/reset/inspect")
        .idempotent()
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Token)
        .json::<InspectReset>()
        .responses(&[RouteResponse::json::<InspectedReset>(200, "The tenant and the e-mail address of the account.")])
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::Overloaded]);

    /// Set a new password with a reset token
    ///
    /// Revokes all sessions of the user, and with `revoke_api_keys` the API keys that the user created. A rejected password
    /// does not use up the token.
    CONFIRM_PASSWORD_RESET = Operation::post("/auth/password/reset/confirm")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Token)
        .json::<ConfirmReset>()
        .responses(&[RouteResponse::empty(204, "The password was set.")])
        .sets_password()
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::Overloaded]);
}

routes! {
    SESSIONS = "Sessions", "Inspect the current credential, list and revoke sessions.":

    /// Get the caller of the current credential
    WHOAMI = Operation::get("/auth/session")
        .access(&[Access::Member, Access::AnyKey])
        .responses(&[RouteResponse::json::<Whoami>(200, "Owner, tenant, role, scopes and expiry of the credential.")]);

    /// List the sessions of a user
    LIST_SESSIONS = Operation::get("/auth/sessions")
        .access(&[Access::Owner, Access::Admin])
        .headers(&[Header::User])
        .query(&[PAGING])
        .responses(&[RouteResponse::json::<Page<Session>>(200, "A page of the active sessions, oldest first.")])
        .problems(&[ProblemKind::NotFound]);

    /// Revoke a session
    REVOKE_SESSION = Operation::delete("/auth/sessions/{session_id}")
        .access(&[Access::Owner, Access::Admin])
        .responses(&[RouteResponse::empty(204, "The session is revoked.")]);

    /// Revoke all sessions of a user
    REVOKE_SESSIONS = Operation::delete("/auth/sessions")
        .access(&[Access::Owner, Access::Admin])
        .headers(&[Header::User])
        .query(&[SchemaRef::new::<RevokeSessions>()])
        .responses(&[RouteResponse::empty(204, "The sessions are revoked.")])
        .problems(&[ProblemKind::NotFound]);

    /// Log out
    ///
    /// Revokes the session of the raw token in `X-Session-ID`. Repeating the request has no effect.
    LOG_OUT = Operation::post("/auth/sessions/logout")
        .idempotent()
        .access(&[Access::RequestSecret])
        .headers(&[Header::Session])
        .responses(&[RouteResponse::empty(204, "The session is revoked.")])
        .problems(&[ProblemKind::SessionNotFound]);
}

routes! {
    DEVICE_LOGIN = "Device login", "Log in a device without a browser or a keyboard (RFC 8628).":

    /// Request device codes
    ///
    /// The device authorization request of RFC 8628, section 3.1. The response does not disclose whether the tenant exists.
    START_DEVICE = Operation::post("/auth/device/code")
        .access(&[Access::Public])
        .rate_limit(RateLimit::Device)
        .headers(&[Header::TenantOrField])
        .form::<StartDevice>()
        .responses(&[
            RouteResponse::json::<DeviceCodes>(200, "The user code to show, and the device code for the token request."),
            RouteResponse::json::<DeviceErrorResponse>(400, "The request is malformed: `invalid_request`."),
            RouteResponse::json::<DeviceErrorResponse>(429, "Too many codes were requested: `temporarily_unavailable`."),
            RouteResponse::json::<DeviceErrorResponse>(500, "The service failed: `server_error`."),
            RouteResponse::json::<DeviceErrorResponse>(503, "The service is not available: `temporarily_unavailable`."),
        ]);

    /// Request the session of a device
    ///
    /// The device access token request of RFC 8628, section 3.4. Repeat it with the given interval until a user has decided.
    /// A device code yields one session, even if several requests use it at the same time. While the service is not available, the error is
    /// `slow_down`, because clients of the standard continue after it.
    REDEEM_DEVICE = Operation::post("/auth/device/token")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Unlimited)
        .form::<PollDevice>()
        .responses(&[
            RouteResponse::json::<DeviceSession>(200, "The session, in the form of the password login."),
            RouteResponse::json::<DeviceErrorResponse>(400, "No session yet, or not at all; `error` is the reason."),
            RouteResponse::json::<DeviceErrorResponse>(500, "The service failed: `server_error`."),
        ]);

    /// Get the device request behind a user code
    ///
    /// A user code of another tenant gets the same response as an unknown one. After ten unknown codes of a user or of an
    /// address, every code gets 429 `rate_limited` with `Retry-After`. Correct codes do not count.
    INSPECT_DEVICE = Operation::post("/auth/device/inspect")
        .idempotent()
        .access(&[Access::Member])
        .json::<InspectDevice>()
        .responses(&[RouteResponse::json::<DeviceRequest>(200, "Name and address of the device.")])
        .problems(&[ProblemKind::NotFound]);

    /// Approve or deny a device
    ///
    /// An approval requires a session that was created with a password at most ten minutes ago, and with the second factor if the user
    /// has one. Unknown codes count as those of `POST /auth/device/inspect`.
    DECIDE_DEVICE = Operation::post("/auth/device/decide")
        .access(&[Access::Member])
        .json::<DecideDevice>()
        .responses(&[RouteResponse::empty(204, "The decision was recorded.")])
        .problems(&[ProblemKind::ReauthenticationRequired, ProblemKind::NotFound]);
}

routes! {
    API_KEYS = "API keys", "Credentials of programs, limited to scopes.":

    /// Create an API key
    ///
    /// Only this response contains the key. Send it as `Authorization: Bearer`.
    CREATE_API_KEY = Operation::post("/api-keys")
        .access(&[Access::RecentAdmin])
        .json::<CreateApiKey>()
        .problems(&[ProblemKind::TooManyApiKeys])
        .responses(&[RouteResponse::json::<ApiKey>(201, "The API key.")]);

    /// List the API keys of the tenant
    LIST_API_KEYS = Operation::get("/api-keys")
        .access(&[Access::Admin, Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .query(&[PAGING])
        .responses(&[RouteResponse::json::<Page<ApiKey>>(200, "A page of the active keys, oldest first.")])
        .problems(&[ProblemKind::NotFound]);

    /// Revoke an API key
    ///
    /// Ingest enforces this typically within 1 s, at most after 5 s. Repeating the request has no effect.
    REVOKE_API_KEY = Operation::delete("/api-keys/{key_id}")
        .access(&[Access::Admin, Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .responses(&[RouteResponse::empty(204, "The key is revoked.")]);
}
