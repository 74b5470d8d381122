//! All problems of the API in one table: code, status, title and remedy.
//!
//! Errors are sent as `application/problem+json` (RFC 9457). Clients check `code`, which never changes.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Secret;
use crate::factors::FactorMethod;

/// The media type of a problem document.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A problem document (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "type": "https://svc.example.com/api/v1/problems/login_failed", "title": "Login failed", "status": 401,
    "detail": "Check tenant, e-mail address and password. After several failures, wait a few minutes or reset the password.",
    "instance": "/api/v1/auth/password/login", "code": "login_failed", "request_id": "8e2f00700080c5d1",
}))]
pub struct Problem {
    /// URL of a page with cause and remedy.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// Title of the problem; the same for every occurrence of the code.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Details of this occurrence.
    pub detail: String,
    /// Path of the request.
    pub instance: String,
    /// Machine-readable code.
    pub code: String,
    /// Identifies the request in the logs.
    pub request_id: String,
    /// Errors of single fields.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<FieldError>,
    /// Milliseconds to wait before the request is repeated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_ms: Option<u64>,
    /// Challenge of a login that needs a second factor, or its set-up.
    #[serde(flatten, default)]
    pub second_factor: Option<SecondFactor>,
}

/// The challenge of the problem `second_factor_required`, for `POST /auth/second-factor`, or of `second_factor_setup_required`, for the
/// set-up of a second factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecondFactor {
    /// The challenge (`svc_ch_…`). It is not a credential.
    pub challenge: Secret,
    /// The second factors that the user has, or can set up.
    pub methods: Vec<FactorMethod>,
    /// Expiry time of the challenge.
    pub expires_at: DateTime<Utc>,
    /// `PublicKeyCredentialRequestOptionsJSON` (WebAuthn Level 3, section 5.1.10) for `navigator.credentials.get`, if the user has
    /// a passkey.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub public_key: Option<serde_json::Value>,
}

/// An error of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldError {
    /// JSON Pointer (RFC 6901): position in the request body, or `/` and the name of a query parameter.
    pub pointer: String,
    /// Machine-readable code.
    pub code: Cow<'static, str>,
    /// Human-readable description.
    pub message: String,
}

/// Escapes a field name for use in a JSON Pointer (RFC 6901).
pub fn escape_pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

macro_rules! problems {
    ($($variant:ident = $code:literal, $status:literal, $title:literal, $remedy:literal;)+) => {
        /// The problems of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant is documented by its title and remedy")]
        pub enum ProblemKind { $($variant),+ }

        impl ProblemKind {
            /// All problems, ordered by status.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the machine-readable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// Returns the HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            /// Returns the title.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// Returns what the caller can do.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),+ }
            }
        }
    };
}

problems! {
    MalformedJson = "malformed_json", 400, "The body is not valid JSON", "Send valid JSON in UTF-8.";
    MalformedEncoding = "malformed_encoding", 400, "The body is not compressed as Content-Encoding states",
        "Send the complete body, compressed as stated in Content-Encoding, or uncompressed.";
    HeaderMissing = "header_missing", 400, "A required header is missing", "Send the header named in `detail`.";
    HeaderInvalid = "header_invalid", 400, "A header is malformed", "Send the header named in `detail` once and in the required form.";
    TokenInvalid = "token_invalid", 400, "The token is not valid",
        "The token was used, has expired, was replaced or is unknown. Request a new one.";
    EmptyBatch = "empty_batch", 400, "The batch contains no event", "Send at least one event.";
    Unauthenticated = "unauthenticated", 401, "A credential is required", "Send a session token or an API key as `Authorization: Bearer`.";
    CredentialInvalid = "credential_invalid", 401, "The credential is not valid",
        "The credential has expired, was revoked or is malformed. Log in again, or send another API key or the current platform token. \
        The scheme of `Authorization` is `Bearer`.";
    LoginFailed = "login_failed", 401, "Login failed",
        "Check tenant, e-mail address and password. After several failures, wait a few minutes or reset the password.";
    SecondFactorFailed = "second_factor_failed", 401, "The code or the passkey is wrong or was already used",
        "Enter the next code of the app, because each code works once, or an unused recovery code, or use a passkey of this account. \
        Check the time of the device.";
    Forbidden = "forbidden", 403, "Not allowed", "Send a credential of a caller that `detail` names.";
    InsufficientScope = "insufficient_scope", 403, "The API key lacks a scope", "Use an API key with the scope named in `detail`.";
    TenantMismatch = "tenant_mismatch", 403, "The credential belongs to another tenant",
        "Omit X-Tenant-ID, or send the tenant of the credential.";
    SourceNotAllowed = "source_not_allowed", 403, "The credential does not allow this source",
        "Use an API key that allows the source. For the token of a Kubernetes service account, add the source to `sourceIds` of its \
        SvcProducer.";
    ReauthenticationRequired = "reauthentication_required", 403, "A recent login is required",
        "Log in with a passkey, or with the password and the second factor if you have one, and repeat the request.";
    SecondFactorRequired = "second_factor_required", 403, "A second factor is required",
        "Send `challenge` with a code of the authenticator app, an assertion of a passkey or a recovery code to \
        `POST /auth/second-factor`.";
    SecondFactorSetupRequired = "second_factor_setup_required", 403, "The tenant requires a second factor",
        "Send `challenge` to `POST /auth/second-factor/totp` or `POST /auth/second-factor/passkey`, and then with the first code of the \
        app or the new passkey to `POST /auth/second-factor`.";
    NotFound = "not_found", 404, "Not found",
        "Check the path, and the ids and codes in the request. An object may have been deleted, or belong to another tenant.";
    SessionNotFound = "session_not_found", 404, "Session not found", "Send the raw session token from the login response.";
    MethodNotAllowed = "method_not_allowed", 405, "The method is not allowed", "Use a method listed in the Allow header.";
    BodyTimeout = "body_timeout", 408, "The body did not arrive in time", "Send the body without pauses, or send a smaller one.";
    TenantExists = "tenant_exists", 409, "The tenant id is already used",
        "An existing or a deleted tenant has this id. Choose another one.";
    UserExists = "user_exists", 409, "The user already exists", "An active user can log in or reset the password. Enable a disabled one.";
    EmailSimilar = "email_similar", 409, "The address looks like that of another user",
        "Check the spelling, and compare the address with those of `GET /users`.";
    UserInvited = "user_invited", 409, "The user has not accepted the invite", "Revoke the invite, or wait until the user accepts it.";
    InvitePending = "invite_pending", 409, "An invite is already pending", "Resend or revoke the pending invite.";
    LastAdmin = "last_admin", 409, "The tenant would have no administrator", "Make another user an administrator first.";
    TenantActive = "tenant_active", 409, "The tenant is active",
        "Suspend the tenant first. A suspended tenant can be resumed, a deleted one cannot.";
    FactorExists = "factor_exists", 409, "An authenticator app is already set up", "Remove the existing one first.";
    LastFactor = "last_factor", 409, "The tenant requires a second factor",
        "Register a passkey before you remove this factor, or ask an administrator to remove your second factors: \
         the next login sets up a new one.";
    TotpUnavailable = "totp_unavailable", 409, "Authenticator apps are not configured",
        "The platform administrator must set `SVC_FACTOR_KEY`.";
    PasskeyUnavailable = "passkey_unavailable", 409, "Passkeys need an address with a host name",
        "The platform administrator must set `SVC_PUBLIC_URL` to `https` with a host name, or to `http://localhost`, and people must open \
        the pages at this address.";
    TooManyPasskeys = "too_many_passkeys", 409, "The user has too many passkeys", "Remove an unused passkey.";
    TooManyApiKeys = "too_many_api_keys", 409, "The tenant has too many API keys", "Revoke an unused key, or wait until a key expires.";
    TooManyInvites = "too_many_invites", 409, "The tenant has too many pending invites",
        "Revoke pending invites, or wait until they are accepted or expire.";
    TooManyUsers = "too_many_users", 409, "The tenant has too many users",
        "Ask the platform administrator to invite the person or to raise `SVC_MAX_USERS`.";
    MailUnavailable = "mail_unavailable", 409, "E-mail is not configured",
        "Request the token in the response with `\"delivery\": \"response\"`, or configure e-mail.";
    ConsumerExists = "consumer_exists", 409, "A consumer with another definition has this name",
        "Choose another name, or delete the existing consumer.";
    EventIdConflict = "event_id_conflict", 409, "Another event in the batch has the same id",
        "Use a different event id for each event of a source.";
    BodyTooLarge = "body_too_large", 413, "The body is too large", "Send at most the size named in `detail`.";
    EventTooLarge = "event_too_large", 413, "The event is too large", "Send events of at most 256 KiB.";
    BatchTooLarge = "batch_too_large", 413, "The batch is too large", "Send at most 10,000 events and 10 MiB per batch.";
    MediaType = "media_type", 415, "The media type is not supported", "Send the Content-Type named in `detail`.";
    ContentEncoding = "content_encoding", 415, "The content encoding is not supported",
        "Compress with gzip or zstd, or send the body uncompressed.";
    ValidationFailed = "validation_failed", 422, "The request is not valid", "Correct the fields listed in `errors`.";
    PasswordTooShort = "password_too_short", 422, "The password is too short", "Use a longer password, for example several words.";
    PasswordTooLong = "password_too_long", 422, "The password is too long", "Use a password of at most 128 characters.";
    PasswordCommon = "password_common", 422, "The password is too common", "Use a password that is not on lists of common passwords.";
    PasswordBreached = "password_breached", 422, "The password is known from a data breach",
        "Use a password that you have not used elsewhere.";
    PasswordContext = "password_context", 422, "The password is easy to guess from the account",
        "Use a password without the e-mail address, the tenant or the product name.";
    PasswordInvalid = "password_invalid", 422, "The password contains an invalid character",
        "Remove control characters and invisible characters, which some emoji contain.";
    PasswordUnchanged = "password_unchanged", 422, "The new password is the current one", "Choose another password.";
    RateLimited = "rate_limited", 429, "Too many requests", "Wait for the time in Retry-After and repeat the request.";
    QuotaExceeded = "quota_exceeded", 429, "The quota of the tenant is exceeded",
        "Wait for the time in Retry-After and send the events again. The platform administrator can raise the limit that `detail` names.";
    TooManyStreams = "too_many_streams", 429, "The tenant reads too many event streams",
        "Close an event stream of the tenant, or repeat the request after the time in Retry-After.";
    Internal = "internal", 500, "Internal error", "Try again later. If the problem persists, report the request id.";
    TransferEncoding = "transfer_encoding", 501, "The transfer encoding is not supported",
        "Send `Transfer-Encoding: chunked` or `Content-Length`, and name a compression in `Content-Encoding`.";
    Overloaded = "overloaded", 503, "The service is overloaded", "Wait for the time in Retry-After and repeat the request.";
    DependencyUnavailable = "dependency_unavailable", 503, "A dependency of the service is unavailable",
        "Wait for the time in Retry-After and repeat the request.";
    StreamFull = "stream_full", 503, "The event stream is full",
        "Keep the events and send them again later. The platform administrator must free space in the stream.";
    AckTimeout = "ack_timeout", 503, "The stream did not acknowledge in time", "Send the same events again with the same ids.";
}

impl ProblemKind {
    /// Finds a problem by its code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }

    /// Returns whether the unchanged request can succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(self.status(), 408 | 429 | 503)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemKind::from_code(kind.code()), Some(*kind));
        }
    }

    #[test]
    fn timeouts_limits_and_unavailability_are_retryable() {
        let retryable: Vec<_> =
            ProblemKind::ALL.iter().filter(|kind| kind.is_retryable()).map(|kind| kind.code()).collect();
        assert_eq!(
            retryable,
            [
                "body_timeout",
                "rate_limited",
                "quota_exceeded",
                "too_many_streams",
                "overloaded",
                "dependency_unavailable",
                "stream_full",
                "ack_timeout"
            ]
        );
    }
}
