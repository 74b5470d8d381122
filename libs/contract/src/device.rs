//! Device login on the wire (RFC 8628): a device that has no keyboard or browser asks, a person at another one decides.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Secret;
use crate::session::IssuedSession;

/// The one grant type that the token route takes (RFC 8628, section 3.4).
pub const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// `POST /auth/device/code`: a device asks for its codes (RFC 8628, section 3.1). An empty text is like none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(example = json!({ "client_name": "backup on db-1" }))]
pub struct StartDevice {
    /// What the person who decides is shown as the name of what asks; at most 64 characters are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Stands for the name where there is none. Clients are not registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Taken and ignored: a session may do what its user may. The answer to the token request says what that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// The codes of a device (RFC 8628, section 3.2).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "device_code": "svc_dc_…", "user_code": "WDJB-MJHT", "expires_in": 600, "interval": 5,
    "verification_uri": "https://svc.example.com/api/v1/pages/device",
    "verification_uri_complete": "https://svc.example.com/api/v1/pages/device#user_code=WDJB-MJHT",
}))]
pub struct DeviceCodes {
    /// The device's own secret (`svc_dc_…`), to ask for the token with.
    pub device_code: Secret,
    /// What the person types, as `XXXX-XXXX`; case and punctuation do not matter.
    pub user_code: String,
    /// Where the person types it.
    pub verification_uri: String,
    /// The same with the code in it.
    pub verification_uri_complete: String,
    /// Seconds until both codes are of no use.
    pub expires_in: u64,
    /// Seconds to wait between two token requests.
    pub interval: u64,
}

/// `POST /auth/device/token`: the device asks whether it was let in (RFC 8628, section 3.4). An empty text is like none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(example = json!({ "grant_type": GRANT_TYPE, "device_code": "svc_dc_…" }))]
pub struct PollDevice {
    /// `urn:ietf:params:oauth:grant-type:device_code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, extend("const" = GRANT_TYPE))]
    pub grant_type: Option<String>,
    /// The device's own secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub device_code: Option<Secret>,
    /// Taken and ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// A device that was let in: what a login answers, and the same in OAuth's words (RFC 6749, section 5.1).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "session_id": "svc_st_…", "token_type": "Bearer", "user_id": "019c1373-2f00-7000-8000-000000000002",
    "tenant_id": "acme", "role": "member", "expires_at": "2026-03-02T12:00:00Z",
    "idle_expires_at": "2026-02-07T12:00:00Z", "access_token": "svc_st_…", "expires_in": 2_592_000,
    "scope": "events:write",
}))]
pub struct DeviceSession {
    /// What a login with a password answers too.
    #[serde(flatten)]
    pub session: IssuedSession,
    /// The same token as `session_id`.
    pub access_token: Secret,
    /// Seconds until the session ends in any case.
    pub expires_in: u64,
    /// What the session may be used for, separated by blanks.
    pub scope: String,
}

/// Why a device gets no codes or no token: answered with 400 (RFC 6749, section 5.2, and RFC 8628, section 3.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "error": "authorization_pending", "error_description": "Nobody has decided yet. Ask again after the interval.",
}))]
pub struct DeviceErrorResponse {
    /// What to key on.
    pub error: DeviceError,
    /// The same in words.
    pub error_description: String,
}

/// What a refused device keys on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceError {
    /// Nobody has decided yet: ask again.
    AuthorizationPending,
    /// The same, but the interval is 5 seconds longer from now on.
    SlowDown,
    /// A person has denied it.
    AccessDenied,
    /// The codes are too old.
    ExpiredToken,
    /// There is no such device code, it was used, or what it was approved under is over.
    InvalidGrant,
    /// The request lacks something, repeats something or cannot be read.
    InvalidRequest,
    /// The grant type is another than this route takes.
    UnsupportedGrantType,
}

impl DeviceError {
    /// The error in words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::AuthorizationPending => "Nobody has decided yet. Ask again after the interval.",
            Self::SlowDown => "Asked too early. The interval is 5 seconds longer from now on.",
            Self::AccessDenied => "A person has denied it.",
            Self::ExpiredToken => "The codes have expired. Ask for new ones.",
            Self::InvalidGrant => "The device code is not valid, or not any more. Ask for new codes.",
            Self::InvalidRequest => "The request lacks something, repeats something or cannot be read.",
            Self::UnsupportedGrantType => "The grant type of this route is that of RFC 8628, section 3.4.",
        }
    }
}

impl From<DeviceError> for DeviceErrorResponse {
    fn from(error: DeviceError) -> Self {
        Self { error, error_description: error.description().to_owned() }
    }
}

/// `POST /auth/device/inspect`: what asks under this code?
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "user_code": "WDJB-MJHT" }))]
pub struct InspectDevice {
    /// As the device shows it; case and punctuation do not matter.
    pub user_code: String,
}

/// What asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "client_name": "backup on db-1", "ip": "192.0.2.7", "created_at": "2026-01-31T12:00:00Z",
}))]
pub struct DeviceRequest {
    /// What it calls itself; nobody has checked that.
    pub client_name: Option<String>,
    /// The address it asked from.
    pub ip: Option<String>,
    /// When it asked.
    pub created_at: DateTime<Utc>,
}

/// `POST /auth/device/decide`: lets a device in as oneself, or not.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "user_code": "WDJB-MJHT", "decision": "approve" }))]
pub struct DecideDevice {
    /// As the device shows it; case and punctuation do not matter.
    pub user_code: String,
    /// Whether it is let in.
    pub decision: Decision,
}

/// What a person says to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It gets a session of theirs.
    Approve,
    /// It gets nothing.
    Deny,
}
