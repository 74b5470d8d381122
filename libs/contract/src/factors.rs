//! Wire types of second factors.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::FactorId;

use crate::Secret;
pub use crate::role::FactorMethod;

/// Maximum number of passkeys of a user.
pub const MAX_PASSKEYS: usize = 10;
/// Maximum number of characters in the name of a passkey.
pub const MAX_PASSKEY_NAME: usize = 64;

/// Request body of `POST /auth/second-factor`: exactly one of `code`, `recovery_code`, `assertion` and `credential`.
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
    /// Assertion of a passkey for the options `public_key` of the problem.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub assertion: Option<Assertion>,
    /// New passkey for the options of `POST /auth/second-factor/passkey`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credential: Option<Registration>,
    /// Name of the new passkey, required with `credential`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(min = 1, max = MAX_PASSKEY_NAME))]
    pub name: Option<String>,
}

/// An assertion of a passkey: `AuthenticationResponseJSON` (WebAuthn Level 3, section 5.1.8). Binary values are base64url without
/// padding. Other members are ignored.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct Assertion {
    /// Id of the credential.
    pub id: String,
    /// Response of the authenticator.
    pub response: AssertionResponse,
}

/// Response of an authenticator to `navigator.credentials.get`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("additionalProperties" = true))]
pub struct AssertionResponse {
    /// What the browser has signed: type, challenge and origin.
    #[serde(rename = "clientDataJSON")]
    pub client_data_json: String,
    /// What the authenticator has signed: relying party, flags and counter.
    pub authenticator_data: String,
    /// The signature.
    pub signature: String,
    /// User handle of a discoverable credential.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_handle: Option<String>,
}

/// Options to register a passkey. They are valid for five minutes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "challenge": "svc_ch_…", "expires_at": "2026-01-31T12:05:00Z",
    "public_key": {
        "rp": { "id": "svc.example", "name": "svc" }, "challenge": "…", "attestation": "none",
        "user": { "id": "…", "name": "ada@acme.example (acme)", "displayName": "ada@acme.example" },
        "pubKeyCredParams": [{ "type": "public-key", "alg": -7 }], "excludeCredentials": [],
        "authenticatorSelection": { "residentKey": "required", "userVerification": "required" },
    },
}))]
pub struct PasskeyOptions {
    /// The challenge (`svc_ch_…`) for `POST /auth/factors/passkeys`. At the set-up in a login, it is the one of the request.
    pub challenge: Secret,
    /// Expiry time of the challenge.
    pub expires_at: DateTime<Utc>,
    /// `PublicKeyCredentialCreationOptionsJSON` (WebAuthn Level 3, section 5.1.9), for `navigator.credentials.create`.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub public_key: Value,
}

/// Options of a login with a passkey alone. They are valid for five minutes and one login.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "expires_at": "2026-01-31T12:05:00Z",
    "public_key": { "challenge": "…", "rpId": "svc.example", "allowCredentials": [], "userVerification": "required" },
}))]
pub struct PasskeyLoginOptions {
    /// Expiry time of the challenge.
    pub expires_at: DateTime<Utc>,
    /// `PublicKeyCredentialRequestOptionsJSON` (WebAuthn Level 3, section 5.1.10), for `navigator.credentials.get`.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub public_key: Value,
}

/// Request body of `POST /auth/passkey/login`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "assertion": {
        "id": "…",
        "response": { "clientDataJSON": "…", "authenticatorData": "…", "signature": "…", "userHandle": "…" },
    },
}))]
pub struct PasskeyLogin {
    /// What the browser returned for the options. `userHandle` is required.
    pub assertion: Assertion,
}

/// Request body of `POST /auth/factors/passkeys`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "challenge": "svc_ch_…", "name": "laptop",
    "credential": { "id": "…", "response": { "clientDataJSON": "…", "authenticatorData": "…" } },
}))]
pub struct AddPasskey {
    /// The challenge of the options.
    pub challenge: Secret,
    /// Name for the person.
    #[schemars(length(min = 1, max = MAX_PASSKEY_NAME))]
    pub name: String,
    /// What the browser returned.
    pub credential: Registration,
}

/// A new passkey: `RegistrationResponseJSON` (WebAuthn Level 3, section 5.1.8). Binary values are base64url without padding. Other
/// members are ignored: without attestation, the attestation object contains nothing else.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct Registration {
    /// Id of the credential.
    pub id: String,
    /// Response of the authenticator.
    pub response: RegistrationResponse,
}

/// Response of an authenticator to `navigator.credentials.create`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("additionalProperties" = true))]
pub struct RegistrationResponse {
    /// Type, challenge and origin.
    #[serde(rename = "clientDataJSON")]
    pub client_data_json: String,
    /// Relying party, flags, counter, credential id and public key.
    pub authenticator_data: String,
}

/// A registered passkey. Only this response contains the recovery codes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "factor_id": "019c1373-2f00-7000-8000-00000000000a", "type": "passkey", "name": "laptop",
    "created_at": "2026-01-31T12:00:00Z", "last_used_at": null, "recovery_codes": ["MZXW-6YTB-OI2D-G7QA"],
}))]
pub struct AddedPasskey {
    /// The passkey.
    #[serde(flatten)]
    pub factor: Factor,
    /// Ten recovery codes, if the user has no unused ones. Otherwise, the existing ones stay valid.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub recovery_codes: Vec<Secret>,
}

/// Request body of `PATCH /auth/factors/{factor_id}`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "name": "laptop" }))]
pub struct RenamePasskey {
    /// Name for the person.
    #[schemars(length(min = 1, max = MAX_PASSKEY_NAME))]
    pub name: String,
}

/// Request body of `POST /auth/second-factor/totp` and `POST /auth/second-factor/passkey`.
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
#[schemars(example = json!({
    "factor_id": "019c1373-2f00-7000-8000-00000000000a", "type": "passkey", "name": "laptop",
    "created_at": "2026-01-31T12:00:00Z", "last_used_at": null,
}))]
pub struct Factor {
    /// Id.
    pub factor_id: FactorId,
    /// Type.
    #[serde(rename = "type")]
    pub kind: FactorType,
    /// Name of a passkey.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
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
    /// A passkey (WebAuthn Level 3).
    Passkey,
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

/// New recovery codes. Only this response contains them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "recovery_codes": ["MZXW-6YTB-OI2D-G7QA"] }))]
pub struct RecoveryCodes {
    /// Ten codes, each of which replaces the second factor once. Empty if an app was confirmed and the user has unused codes: they stay
    /// valid.
    pub recovery_codes: Vec<Secret>,
}
