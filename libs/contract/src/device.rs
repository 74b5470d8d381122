//! Wire types of device login (RFC 8628).

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Secret;
use crate::session::IssuedSession;

/// The only grant type that the token route accepts (RFC 8628, section 3.4).
pub const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Request body of `POST /auth/device/code` (RFC 8628, section 3.1). An empty string is treated as absent. The tenant is in the body
/// or in `X-Tenant-ID`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "client_name": "backup on db-1" }))]
#[schemars(extend("additionalProperties" = true))]
pub struct StartDevice {
    /// The tenant, for clients that cannot send other headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Device name that the approving user sees. Truncated to 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Used as the name if `client_name` is absent. Clients are not registered, so the id proves nothing and is not bound to the codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Ignored. A session has the permissions of its user; the token response lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Device codes (RFC 8628, section 3.2).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "device_code": "svc_dc_…", "user_code": "WDJB-MJHT", "expires_in": 600, "interval": 5,
    "verification_uri": "https://svc.example.com/api/v1/pages/device",
    "verification_uri_complete": "https://svc.example.com/api/v1/pages/device#user_code=WDJB-MJHT",
}))]
pub struct DeviceCodes {
    /// Secret of the device (`svc_dc_…`) for the token request.
    pub device_code: Secret,
    /// Code for the user to enter, as `XXXX-XXXX`. Case and punctuation are ignored.
    pub user_code: String,
    /// Page where the user enters the code.
    pub verification_uri: String,
    /// The same page with the code filled in.
    pub verification_uri_complete: String,
    /// Seconds until both codes expire.
    pub expires_in: u64,
    /// Minimum seconds between two token requests.
    pub interval: u64,
}

/// Request body of `POST /auth/device/token` (RFC 8628, section 3.4). An empty string is treated as absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "grant_type": GRANT_TYPE, "device_code": "svc_dc_…" }))]
#[schemars(extend("additionalProperties" = true))]
pub struct PollDevice {
    /// `urn:ietf:params:oauth:grant-type:device_code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("const" = GRANT_TYPE))]
    pub grant_type: Option<String>,
    /// Secret of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub device_code: Option<Secret>,
    /// Ignored, also if it is not that of the request for codes: clients are not registered, and the device code is the only proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// Session of an approved device: the fields of a login and those of an OAuth token response (RFC 6749, section 5.1).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "session_id": "svc_st_…", "token_type": "Bearer", "user_id": "019c1373-2f00-7000-8000-000000000002",
    "tenant_id": "acme", "role": "member", "expires_at": "2026-03-02T12:00:00Z",
    "idle_expires_at": "2026-02-07T12:00:00Z", "access_token": "svc_st_…", "expires_in": 2_592_000,
    "scope": "events:write",
}))]
pub struct DeviceSession {
    /// The fields of a password login.
    #[serde(flatten)]
    pub session: IssuedSession,
    /// The same token as `session_id`.
    pub access_token: Secret,
    /// Seconds until the absolute expiry of the session.
    pub expires_in: u64,
    /// Scopes of the session, separated by spaces.
    pub scope: String,
}

/// Error of the device routes (RFC 6749, section 5.2, and RFC 8628, section 3.5). An error that is not about the grant also has the fields
/// of a problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "error": "authorization_pending", "error_description": "No user has decided yet. Repeat the request after the interval.",
}))]
pub struct DeviceErrorResponse {
    /// Machine-readable error.
    pub error: DeviceError,
    /// Human-readable error.
    pub error_description: String,
}

/// Error codes of the device routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceError {
    /// No user has decided yet. Repeat the request.
    AuthorizationPending,
    /// As `authorization_pending`, and the interval increases by 5 seconds.
    SlowDown,
    /// A user denied the request.
    AccessDenied,
    /// The codes have expired.
    ExpiredToken,
    /// The device code is unknown or was used, or the approving user lost access.
    InvalidGrant,
    /// A parameter is missing or repeated, or the body is malformed.
    InvalidRequest,
    /// The grant type is not supported.
    UnsupportedGrantType,
    /// The client requested too many codes, or the service is not available. Repeat the request after `Retry-After`.
    TemporarilyUnavailable,
    /// The service failed.
    ServerError,
}

impl DeviceError {
    /// Returns the human-readable error.
    pub const fn description(self) -> &'static str {
        match self {
            Self::AuthorizationPending => "No user has decided yet. Repeat the request after the interval.",
            Self::SlowDown => "The request came too early. The interval increases by 5 seconds.",
            Self::AccessDenied => "A user denied the request.",
            Self::ExpiredToken => "The codes have expired. Request new ones.",
            Self::InvalidGrant => "The device code is not valid, or no longer valid. Request new codes.",
            Self::InvalidRequest => "A parameter is missing or repeated, or the body is malformed.",
            Self::UnsupportedGrantType => "Use the grant type of RFC 8628, section 3.4.",
            Self::TemporarilyUnavailable => "Repeat the request later.",
            Self::ServerError => "The service failed. Repeat the request later.",
        }
    }
}

impl From<DeviceError> for DeviceErrorResponse {
    fn from(error: DeviceError) -> Self {
        Self { error, error_description: error.description().to_owned() }
    }
}

/// Request body of `POST /auth/device/inspect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "user_code": "WDJB-MJHT" }))]
pub struct InspectDevice {
    /// The code that the device shows. Case and punctuation are ignored.
    pub user_code: String,
}

/// A device that requests a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "client_name": "backup on db-1", "ip": "192.0.2.7", "created_at": "2026-01-31T12:00:00Z",
}))]
pub struct DeviceRequest {
    /// Name that the device gave. It is not verified.
    pub client_name: Option<String>,
    /// Address of the request.
    pub ip: Option<String>,
    /// Time of the request.
    pub created_at: DateTime<Utc>,
}

/// Request body of `POST /auth/device/decide`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "user_code": "WDJB-MJHT", "decision": "approve" }))]
pub struct DecideDevice {
    /// The code that the device shows. Case and punctuation are ignored.
    pub user_code: String,
    /// Whether the device gets a session of the caller.
    pub decision: Decision,
}

/// Decision about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The device gets a session of the user.
    Approve,
    /// The device gets no session.
    Deny,
}
