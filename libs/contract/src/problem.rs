//! Everything that can go wrong, in one table: code, status, title, and what to do about it.
//!
//! Errors are answered as `application/problem+json` (RFC 9457). Clients key on `code`, which never changes.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The media type of a problem document.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A problem document (RFC 9457), as servers send it and clients read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "type": "https://svc.example.com/api/v1/problems/login_failed", "title": "Login failed", "status": 401,
    "detail": "Check tenant, e-mail and password; wait a little after several failures; or reset the password.",
    "instance": "/api/v1/auth/password/login", "code": "login_failed", "request_id": "019c13732f0070008000000000000005",
}))]
pub struct Problem {
    /// Resolves to a page that explains the problem.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// The same for every occurrence of the code.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// The path that was asked.
    pub instance: String,
    /// What to key on.
    pub code: String,
    /// Finds this request in the logs.
    pub request_id: String,
    /// Faults of single fields.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<FieldError>,
    /// When to try again, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_ms: Option<u64>,
}

/// A fault of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldError {
    /// Where, as a JSON Pointer (RFC 6901) into the request body.
    pub pointer: String,
    /// What kind of fault.
    pub code: Cow<'static, str>,
    /// The fault in words.
    pub message: String,
}

macro_rules! problems {
    ($($variant:ident = $code:literal, $status:literal, $title:literal, $remedy:literal;)+) => {
        /// The kinds of problem that the API answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant is documented by its title and remedy")]
        pub enum ProblemKind { $($variant),+ }

        impl ProblemKind {
            /// Every kind, by status.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// What clients key on.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The HTTP status that it is answered with.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            /// What went wrong, in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What the caller can do about it.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),+ }
            }
        }
    };
}

problems! {
    MalformedJson = "malformed_json", 400, "The body is not JSON", "Send a body that a JSON parser accepts, in UTF-8.";
    MalformedEncoding = "malformed_encoding", 400, "The compressed body does not inflate", "Send the body whole, compressed as Content-Encoding says, or not compressed.";
    HeaderMissing = "header_missing", 400, "A required header is missing", "Send the header that the detail names.";
    HeaderInvalid = "header_invalid", 400, "A header is malformed", "Send the header once, in the form that the detail names.";
    TokenInvalid = "token_invalid", 400, "The token cannot be used", "It was used, has expired, was replaced or never existed. Ask for a new one.";
    EmptyBatch = "empty_batch", 400, "The batch holds no event", "Send at least one event.";
    Unauthenticated = "unauthenticated", 401, "A credential is needed", "Log in, then send the session token as `Authorization: Bearer`.";
    CredentialInvalid = "credential_invalid", 401, "The credential is not valid", "It has expired, was revoked or is malformed. Log in again.";
    LoginFailed = "login_failed", 401, "Login failed", "Check tenant, e-mail and password; wait a little after several failures; or reset the password.";
    Forbidden = "forbidden", 403, "Not allowed", "Ask an administrator of the tenant.";
    InsufficientScope = "insufficient_scope", 403, "The key lacks the scope", "Use a key with the scope that the detail names.";
    TenantMismatch = "tenant_mismatch", 403, "The credential belongs to another tenant", "Leave X-Tenant-ID away, or name the credential's own tenant.";
    SourceNotAllowed = "source_not_allowed", 403, "The key may not send for this source", "Use a key that allows the source.";
    ReauthenticationRequired = "reauthentication_required", 403, "A fresh login is needed", "Log in with the password again, then repeat the request.";
    NotFound = "not_found", 404, "Not found", "Check path and id.";
    SessionNotFound = "session_not_found", 404, "There never was such a session", "Send the raw session token as it was returned at login.";
    MethodNotAllowed = "method_not_allowed", 405, "The path does not take this method", "Use a method of the Allow header.";
    BodyTimeout = "body_timeout", 408, "The body did not arrive in time", "Send the body without pause, or send less at once.";
    TenantExists = "tenant_exists", 409, "The tenant exists already", "Choose another tenant id.";
    UserExists = "user_exists", 409, "The user exists already", "Nothing needs to be done: the person can log in, or reset the password.";
    UserInvited = "user_invited", 409, "The user has not accepted the invite yet", "Revoke the invite, or wait until it is accepted.";
    InvitePending = "invite_pending", 409, "An invite is pending already", "Resend or revoke the pending invite.";
    LastAdmin = "last_admin", 409, "The tenant would lose its last administrator", "Make somebody else an administrator first.";
    TooManyApiKeys = "too_many_api_keys", 409, "The tenant has as many API keys as it may", "Revoke a key that is no longer used, or wait until one runs out.";
    MailUnavailable = "mail_unavailable", 409, "No mail can be sent", "Ask for the token in the answer with `\"delivery\": \"response\"`, or configure mail.";
    EventIdConflict = "event_id_conflict", 409, "Another event of the batch has the same id", "Give each event of a source an id of its own.";
    BodyTooLarge = "body_too_large", 413, "The body is too large", "Send at most what the detail names.";
    EventTooLarge = "event_too_large", 413, "The event is too large", "Send events of at most 256 KiB.";
    BatchTooLarge = "batch_too_large", 413, "The batch is too large", "Send at most 1,000 events and 10 MiB in a batch.";
    MediaType = "media_type", 415, "The media type is not taken here", "Send the Content-Type that the detail names.";
    ContentEncoding = "content_encoding", 415, "The content encoding is not taken here", "Compress with gzip or zstd, or not at all.";
    ValidationFailed = "validation_failed", 422, "The body has the wrong shape", "Correct the fields that `errors` names.";
    PasswordTooShort = "password_too_short", 422, "The password is too short", "Choose a longer password; several words make a good one.";
    PasswordTooLong = "password_too_long", 422, "The password is too long", "Choose a password of at most 128 characters.";
    PasswordCommon = "password_common", 422, "The password is a common one", "Choose a password that others do not use.";
    PasswordBreached = "password_breached", 422, "The password is known from a breach", "Choose a password that was never used elsewhere.";
    PasswordContext = "password_context", 422, "The password is easy to guess from the account", "Choose a password without the address, the tenant or the product.";
    PasswordInvalid = "password_invalid", 422, "The password holds a character that cannot be used", "Leave control characters out.";
    RateLimited = "rate_limited", 429, "Too many requests", "Wait as Retry-After says, then try again.";
    QuotaExceeded = "quota_exceeded", 429, "The tenant's quota is used up", "Wait as Retry-After says, then send the same events again.";
    Internal = "internal", 500, "Something went wrong here", "Try again later; if it stays, report the request id.";
    Overloaded = "overloaded", 503, "Too much work at once", "Wait as Retry-After says, then try again.";
    DependencyUnavailable = "dependency_unavailable", 503, "Something that this needs is not available", "Wait as Retry-After says, then try again.";
    StreamFull = "stream_full", 503, "The event stream is full", "Keep the events and send them again later; the operator has to make room.";
    AckTimeout = "ack_timeout", 503, "The stream did not acknowledge in time", "Send the same events again, with the same ids.";
}

impl ProblemKind {
    /// The kind with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }

    /// Whether the same request can succeed later, unchanged.
    pub const fn is_retryable(self) -> bool {
        matches!(self.status(), 408 | 429 | 503)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_lead_back_to_their_kind() {
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemKind::from_code(kind.code()), Some(*kind));
        }
    }

    #[test]
    fn what_can_be_retried_is_what_passes_by_itself() {
        let retryable: Vec<_> =
            ProblemKind::ALL.iter().filter(|kind| kind.is_retryable()).map(|kind| kind.code()).collect();
        assert_eq!(
            retryable,
            [
                "body_timeout",
                "rate_limited",
                "quota_exceeded",
                "overloaded",
                "dependency_unavailable",
                "stream_full",
                "ack_timeout"
            ]
        );
    }
}
