//! Second factors.

use super::{Access, Header, Operation, RateLimit, Route, RouteResponse, routes};
use crate::ProblemKind;
use crate::factors::{
    AddPasskey, AddedPasskey, ConfirmTotp, Factor, Factors, NewTotp, PasskeyLogin, PasskeyLoginOptions,
    PasskeyOptions, RecoveryCodes, RenamePasskey, StartSetup, UseFactor,
};
use crate::session::{IssuedSession, PageSession};

/// Problems of a login with a second factor.
const LOGIN: &[ProblemKind] = &[
    ProblemKind::TokenInvalid,
    ProblemKind::LoginFailed,
    ProblemKind::SecondFactorFailed,
    ProblemKind::TotpUnavailable,
    ProblemKind::PasskeyUnavailable,
    ProblemKind::Overloaded,
];

/// Problems of a login with a passkey alone, or with a new one.
const PASSKEY_LOGIN: &[ProblemKind] = &[
    ProblemKind::TokenInvalid,
    ProblemKind::LoginFailed,
    ProblemKind::PasskeyUnavailable,
    ProblemKind::Overloaded,
];

routes! {
    SECOND_FACTORS = "Second factors", "Authenticator apps, passkeys and recovery codes.":

    /// Complete a login with a second factor
    ///
    /// A login of a user with a second factor gets 403 `second_factor_required` with a `challenge`. This request sends it with a
    /// code of the authenticator app, an assertion of a passkey for `public_key` or a recovery code, and gets the response of the
    /// login. A challenge is valid for five minutes, five attempts and one login. Then it is `token_invalid`: log in again. After 50
    /// wrong codes or passkeys within a day, codes of the app and passkeys are `rate_limited` for a day. Recovery codes still work.
    ///
    /// With the challenge of `second_factor_setup_required`, the first code of the new app confirms the app, or `credential` and `name`
    /// register a passkey. The response also contains ten `recovery_codes`.
    USE_FACTOR = Operation::post("/auth/second-factor")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant])
        .json::<UseFactor>()
        .responses(&[RouteResponse::json::<IssuedSession>(200, "The session. Send `session_id` as `Authorization: Bearer`.")])
        .problems(LOGIN);

    /// Set up an authenticator app to complete a login
    ///
    /// A login of a user without a second factor in a tenant that requires one gets 403 `second_factor_setup_required` with a
    /// `challenge`. It permits only this request, `POST /auth/second-factor/passkey` and `POST /auth/second-factor`. Only this response
    /// contains the secret. A repeated request replaces it.
    SET_UP_TOTP_AT_LOGIN = Operation::post("/auth/second-factor/totp")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant])
        .json::<StartSetup>()
        .responses(&[RouteResponse::json::<NewTotp>(201, "The secret.")])
        .problems(&[
            ProblemKind::TokenInvalid,
            ProblemKind::LoginFailed,
            ProblemKind::FactorExists,
            ProblemKind::TotpUnavailable,
            ProblemKind::Overloaded,
        ]);

    /// Request the options to register a passkey to complete a login
    ///
    /// In place of `POST /auth/second-factor/totp`, as `POST /auth/factors/passkeys/options`. The options have the challenge of the
    /// request and are valid as long as it.
    SET_UP_PASSKEY_AT_LOGIN = Operation::post("/auth/second-factor/passkey")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant])
        .json::<StartSetup>()
        .responses(&[RouteResponse::json::<PasskeyOptions>(200, "The options.")])
        .problems(PASSKEY_LOGIN);

    /// Complete a login on the page of own sessions with a second factor
    ///
    /// For the page `sessions` only, as `POST /pages/sessions/login`.
    USE_FACTOR_ON_PAGE = Operation::post("/pages/sessions/second-factor")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::Tenant])
        .json::<UseFactor>()
        .responses(&[RouteResponse::json::<PageSession>(200, "The user of the session.")])
        .problems(LOGIN);

    /// Request the options to log in with a passkey alone
    ///
    /// For a page of the origin `SVC_PUBLIC_URL`: `navigator.credentials.get({publicKey:
    /// PublicKeyCredential.parseRequestOptionsFromJSON(public_key)})`. The request names no account, and the person chooses a passkey.
    START_PASSKEY_LOGIN = Operation::post("/auth/passkey/options")
        .access(&[Access::Public])
        .responses(&[RouteResponse::json::<PasskeyLoginOptions>(200, "The options.")])
        .problems(&[ProblemKind::PasskeyUnavailable]);

    /// Log in with a passkey alone
    ///
    /// The passkey determines the user and the tenant. It is two factors at once, so no second step follows. `token_invalid` means that
    /// the challenge is expired or used: request new options. Every other rejected login gets the same `login_failed` as a wrong password:
    /// for example an unknown passkey, a wrong signature, a disabled or locked account, or a tenant with `passkey_login: false`. If the
    /// request names a tenant, the passkey must belong to it.
    LOG_IN_WITH_PASSKEY = Operation::post("/auth/passkey/login")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::OptionalTenant])
        .json::<PasskeyLogin>()
        .responses(&[RouteResponse::json::<IssuedSession>(200, "The session. Send `session_id` as `Authorization: Bearer`.")])
        .problems(PASSKEY_LOGIN);

    /// Log in on the page of own sessions with a passkey alone
    ///
    /// For the page `sessions` only, as `POST /pages/sessions/login`.
    LOG_IN_WITH_PASSKEY_ON_PAGE = Operation::post("/pages/sessions/passkey")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Login)
        .headers(&[Header::OptionalTenant])
        .json::<PasskeyLogin>()
        .responses(&[RouteResponse::json::<PageSession>(200, "The user of the session.")])
        .problems(PASSKEY_LOGIN);

    /// List the own second factors
    LIST_FACTORS = Operation::get("/auth/factors")
        .access(&[Access::Member])
        .responses(&[RouteResponse::json::<Factors>(200, "The factors, and the number of unused recovery codes.")]);

    /// Set up an authenticator app
    ///
    /// Only this response contains the secret. The app has no effect until `POST /auth/factors/totp/confirm`; a repeated request
    /// replaces a secret that is not confirmed. A change of the factors requires a session that was created with the password at
    /// most ten minutes ago, and with the second factor if there is one.
    SET_UP_TOTP = Operation::post("/auth/factors/totp")
        .access(&[Access::RecentMember])
        .responses(&[RouteResponse::json::<NewTotp>(201, "The secret.")])
        .problems(&[ProblemKind::FactorExists, ProblemKind::TotpUnavailable]);

    /// Confirm an authenticator app with a first code
    ///
    /// From then on, logins of the user need a second factor. Existing sessions stay valid, but are no recent login.
    CONFIRM_TOTP = Operation::post("/auth/factors/totp/confirm")
        .access(&[Access::RecentMember])
        .json::<ConfirmTotp>()
        .responses(&[RouteResponse::json::<RecoveryCodes>(200, "Recovery codes, if the user has none.")])
        .problems(&[ProblemKind::NotFound, ProblemKind::FactorExists, ProblemKind::TotpUnavailable]);

    /// Request the options to register a passkey
    ///
    /// For a page of the origin `SVC_PUBLIC_URL`: `navigator.credentials.create({publicKey:
    /// PublicKeyCredential.parseCreationOptionsFromJSON(public_key)})`. A user has at most ten passkeys.
    START_PASSKEY = Operation::post("/auth/factors/passkeys/options")
        .access(&[Access::RecentMember])
        .responses(&[RouteResponse::json::<PasskeyOptions>(201, "The options.")])
        .problems(&[ProblemKind::PasskeyUnavailable, ProblemKind::TooManyPasskeys]);

    /// Register a passkey
    ///
    /// From then on, logins of the user need a second factor. Existing sessions stay valid, but are no recent login.
    ADD_PASSKEY = Operation::post("/auth/factors/passkeys")
        .access(&[Access::RecentMember])
        .json::<AddPasskey>()
        .responses(&[RouteResponse::json::<AddedPasskey>(201, "The passkey, and recovery codes if the user has none.")])
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::PasskeyUnavailable, ProblemKind::TooManyPasskeys]);

    /// Rename an own passkey
    ///
    /// An authenticator app has no name.
    RENAME_PASSKEY = Operation::patch("/auth/factors/{factor_id}")
        .idempotent()
        .access(&[Access::RecentMember])
        .json::<RenamePasskey>()
        .responses(&[RouteResponse::json::<Factor>(200, "The renamed passkey.")]);

    /// Replace the recovery codes
    ///
    /// Requires a recent login with the second factor.
    REPLACE_RECOVERY_CODES = Operation::post("/auth/factors/recovery-codes")
        .access(&[Access::RecentMember])
        .responses(&[RouteResponse::json::<RecoveryCodes>(201, "The new recovery codes.")])
        .problems(&[ProblemKind::NotFound]);

    /// Remove an own second factor
    ///
    /// Requires a recent login with the second factor. Removing the last one also removes the recovery codes, and is `last_factor` for a
    /// user who must have one.
    REMOVE_FACTOR = Operation::delete("/auth/factors/{factor_id}")
        .access(&[Access::RecentMember])
        .responses(&[RouteResponse::empty(204, "The factor is removed.")])
        .problems(&[ProblemKind::LastFactor]);

    /// Remove the second factors of a user
    ///
    /// For a person who has lost them. Also removes the recovery codes. The person and the administrators get a mail. The password
    /// and the sessions of the user stay valid. For the own factors, it is `last_factor` if the caller must have one: another
    /// administrator or the platform administrator removes them.
    RESET_FACTORS = Operation::delete("/users/{user_id}/factors")
        .access(&[Access::RecentAdmin, Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .responses(&[RouteResponse::empty(204, "The user has no second factor.")])
        .problems(&[ProblemKind::LastFactor]);
}
