//! Wire types of second factors.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::FactorId;

use crate::Secret;
pub use crate::role::FactorMethod;

/// Request body of `POST /auth/second-factor`: exactly one of `code` and `recovery_code`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "challenge": "svc_ch_…", "code": "287082" }))]
pub struct UseFactor {
    /// The challenge (`svc_ch_…`) of the problem `second_factor_required` or `second_factor_setup_required`.
    pub challenge: Secret,
    /// Code of the authenticator app, six digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<Secret>,
    /// An unused recovery code. Case, spaces and hyphens are ignored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery_code: Option<Secret>,
}

/// Request body of `POST /auth/second-factor/totp`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "challenge": "svc_ch_…" }))]
pub struct StartSetup {
    /// The challenge (`svc_ch_…`) of the problem `second_factor_setup_required`.
    pub challenge: Secret,
}

/// The second factors of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "factors": [{
        "factor_id": "019c1373-2f00-7000-8000-00000000000a", "type": "totp", "created_at": "2026-01-31T12:00:00Z",
        "last_used_at": "2026-01-31T12:10:00Z",
    }],
    "recovery_codes": 10,
}))]
pub struct Factors {
    /// The factors.
    pub factors: Vec<Factor>,
    /// Number of unused recovery codes.
    pub recovery_codes: i64,
}

/// A second factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Factor {
    /// Id.
    pub factor_id: FactorId,
    /// Type.
    #[serde(rename = "type")]
    pub kind: FactorType,
    /// Time of the set-up.
    pub created_at: DateTime<Utc>,
    /// Time of the last login with it. `null` before the first one.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// Type of a second factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactorType {
    /// An authenticator app (RFC 6238).
    Totp,
}

/// An authenticator app that is not confirmed. Only this response contains the secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "factor_id": "019c1373-2f00-7000-8000-00000000000a", "secret": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
    "uri": "otpauth://totp/svc:ada%40acme%2Eexample?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=svc",
    "qr_code": "<svg …></svg>",
}))]
pub struct NewTotp {
    /// Id of the factor.
    pub factor_id: FactorId,
    /// The secret in Base32, to type it into an app.
    pub secret: Secret,
    /// The secret as an `otpauth` URI, for a QR code.
    pub uri: Secret,
    /// The URI as a QR code (ISO/IEC 18004): an SVG image with a white background and a quiet zone.
    pub qr_code: Secret,
}

/// Request body of `POST /auth/factors/totp/confirm`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "code": "287082" }))]
pub struct ConfirmTotp {
    /// Code of the authenticator app, six digits.
    pub code: Secret,
}

/// New recovery codes. Only this response contains them; earlier ones are invalid.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "recovery_codes": ["MZXW-6YTB-OI2D-G7QA"] }))]
pub struct RecoveryCodes {
    /// Ten codes, each of which replaces one code of the app.
    pub recovery_codes: Vec<Secret>,
}
