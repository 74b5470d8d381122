//! Passkeys: verification of registrations and assertions of WebAuthn Level 3 (sections 7.1 and 7.2) without attestation.
//!
//! Without attestation, nothing signs a registration. A client that is no browser can register any key, but only for its own user. An
//! assertion is signed by the authenticator.

use chrono::{DateTime, SubsecRound as _, Utc};
use contract::factors::{Assertion, Registration};
use contract::session::AuthMethod;
use data_encoding::BASE64URL_NOPAD;
use hashing::Entropy;
use ring::agreement::{self, ECDH_P256, EphemeralPrivateKey, agree_ephemeral};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tenancy::FactorId;
use url::{Host, Url};
use uuid::Uuid;

use super::account::LimiterKeys;
use super::factor::CHALLENGE_TTL;

/// Length of the random part of a [`LoginChallenge`] (section 13.4.3).
const NONCE_LEN: usize = 16;
/// Length of its expiry time.
const EXPIRY_LEN: usize = 8;
/// Maximum length of a credential id (section 7.1).
const MAX_CREDENTIAL_ID: usize = 1023;

// Flags of the authenticator (section 6.1).
const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const HAS_CREDENTIAL: u8 = 1 << 6;
const HAS_EXTENSIONS: u8 = 1 << 7;

/// A passkey as it is registered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewPasskey {
    pub(crate) credential_id: Vec<u8>,
    /// The key as the authenticator sent it (`COSE_Key`).
    pub(crate) public_key: Vec<u8>,
    pub(crate) sign_count: u32,
    pub(crate) backup_eligible: bool,
}

/// A registered passkey.
pub(crate) struct StoredPasskey {
    pub(crate) factor_id: FactorId,
    pub(crate) user_handle: Uuid,
    pub(crate) passkey: NewPasskey,
}

/// Why a message of an authenticator is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPasskey {
    #[error("is malformed: `{0}` is not the one of WebAuthn Level 3")]
    Malformed(&'static str),
    #[error("answers another request; request new options")]
    Challenge,
    #[error("was created on a page at another address")]
    Origin,
    #[error("belongs to another relying party")]
    RelyingParty,
    #[error("was created without verification of the user: use a device with a screen lock or a PIN")]
    Unverified,
    #[error("has a key of another algorithm than ES256, EdDSA and RS256")]
    Algorithm,
    #[error("has a key that can verify no signature")]
    Key,
    #[error("belongs to another user")]
    User,
    #[error("has a wrong signature")]
    Signature,
    #[error("has a counter that is not above the stored one: the passkey may have been copied")]
    Counter,
}

/// A challenge of a login with a passkey alone: a nonce and an expiry time (Unix time in milliseconds), with their MAC. It is not stored,
/// because any client can request any number of them. Only a used one is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoginChallenge {
    bytes: Vec<u8>,
    expires_at: DateTime<Utc>,
}

/// The relying party: the host and the origin of the pages.
#[derive(Clone, Debug)]
pub(crate) struct RelyingParty {
    id: String,
    origin: String,
    product: String,
}

/// What the browser vouches for (section 5.8.1).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

/// Authenticator data (section 6.1) that was checked.
struct AuthenticatorData<'a> {
    flags: u8,
    sign_count: u32,
    /// The attested credential and the extensions.
    rest: &'a [u8],
}

/// A public key with its algorithm.
enum PublicKey<'a> {
    Es256([u8; 65]),
    EdDsa(&'a [u8]),
    Rs256(&'a [u8]),
}

impl RelyingParty {
    /// Returns the relying party of an origin; `None` if browsers create no passkeys there: an IP address, or a host name without TLS.
    pub(crate) fn new(public_url: &Url, product: &str) -> Option<Self> {
        let Some(Host::Domain(host)) = public_url.host() else { return None };
        let is_secure = public_url.scheme() == "https" || host == "localhost" || host.ends_with(".localhost");
        let origin = public_url.origin().ascii_serialization();
        is_secure.then(|| Self { id: host.to_owned(), origin, product: product.to_owned() })
    }

    /// Returns `PublicKeyCredentialCreationOptionsJSON`. `existing` are the credential ids of the user.
    pub(crate) fn creation_options<'a>(
        &self,
        challenge: &[u8],
        user_handle: Uuid,
        (name, display_name): (&str, &str),
        existing: impl Iterator<Item = &'a [u8]>,
    ) -> Value {
        let algorithms = [-7, -8, -257].map(|algorithm| json!({ "type": "public-key", "alg": algorithm }));
        json!({
            "rp": { "id": self.id, "name": self.product },
            "user": { "id": encode(user_handle.as_bytes()), "name": name, "displayName": display_name },
            "challenge": encode(challenge),
            "pubKeyCredParams": algorithms,
            "timeout": CHALLENGE_TTL.num_milliseconds(),
            "excludeCredentials": descriptors(existing),
            "authenticatorSelection": {
                "residentKey": "required", "requireResidentKey": true, "userVerification": "required",
            },
            "attestation": "none",
        })
    }

    /// Returns `PublicKeyCredentialRequestOptionsJSON`. Without credential ids, the person chooses among the discoverable ones.
    pub(crate) fn request_options<'a>(
        &self,
        challenge: &[u8],
        allowed: impl Iterator<Item = &'a [u8]>,
    ) -> Value {
        json!({
            "challenge": encode(challenge),
            "timeout": CHALLENGE_TTL.num_milliseconds(),
            "rpId": self.id,
            "allowCredentials": descriptors(allowed),
            "userVerification": "required",
        })
    }

    /// Verifies a registration.
    pub(crate) fn register(
        &self,
        registration: &Registration,
        challenge: &[u8],
    ) -> Result<NewPasskey, InvalidPasskey> {
        let response = &registration.response;
        let client_data = decode(&response.client_data_json, "clientDataJSON")?;
        self.check_client_data(&client_data, "webauthn.create", challenge)?;
        let data = decode(&response.authenticator_data, "authenticatorData")?;
        let data = self.authenticator_data(&data)?;
        let malformed = InvalidPasskey::Malformed("authenticatorData");
        let credential = Some(data.rest).filter(|_| data.flags & HAS_CREDENTIAL != 0);
        let (credential_id, key) = credential.and_then(attested_credential).ok_or(malformed)?;
        if credential_id != decode(&registration.id, "id")? {
            return Err(InvalidPasskey::Malformed("id"));
        }
        let (parsed, extensions) = PublicKey::parse(key).ok_or(InvalidPasskey::Algorithm)?;
        if !parsed.is_on_curve() {
            return Err(InvalidPasskey::Key);
        }
        if extensions.is_empty() != (data.flags & HAS_EXTENSIONS == 0) {
            return Err(malformed);
        }
        Ok(NewPasskey {
            credential_id: credential_id.to_vec(),
            public_key: key[..key.len() - extensions.len()].to_vec(),
            sign_count: data.sign_count,
            backup_eligible: data.flags & BACKUP_ELIGIBLE != 0,
        })
    }

    /// Verifies an assertion of a passkey. Returns the new counter.
    pub(crate) fn verify(
        &self,
        assertion: &Assertion,
        StoredPasskey { passkey, user_handle, .. }: &StoredPasskey,
        challenge: &[u8],
    ) -> Result<u32, InvalidPasskey> {
        let response = &assertion.response;
        let returned =
            response.user_handle.as_deref().map(|handle| decode(handle, "userHandle")).transpose()?;
        if returned.is_some_and(|returned| returned != user_handle.as_bytes()) {
            return Err(InvalidPasskey::User);
        }
        let client_data = decode(&response.client_data_json, "clientDataJSON")?;
        self.check_client_data(&client_data, "webauthn.get", challenge)?;
        let signed = decode(&response.authenticator_data, "authenticatorData")?;
        let data = self.authenticator_data(&signed)?;
        if (data.flags & BACKUP_ELIGIBLE != 0) != passkey.backup_eligible {
            return Err(InvalidPasskey::Malformed("authenticatorData"));
        }
        let (key, _) = PublicKey::parse(&passkey.public_key).ok_or(InvalidPasskey::Algorithm)?;
        let message = [&*signed, &*Sha256::digest(&client_data)].concat();
        if !key.verifies(&message, &decode(&response.signature, "signature")?) {
            return Err(InvalidPasskey::Signature);
        }
        let has_counter = data.sign_count != 0 || passkey.sign_count != 0;
        if has_counter && data.sign_count <= passkey.sign_count {
            return Err(InvalidPasskey::Counter);
        }
        Ok(data.sign_count)
    }

    /// Verifies an assertion that names its user with the user handle. Returns the new counter. If the error is
    /// [`InvalidPasskey::Counter`], everything else is valid.
    pub(crate) fn verify_discoverable(
        &self,
        assertion: &Assertion,
        stored: &StoredPasskey,
        challenge: &[u8],
    ) -> Result<u32, InvalidPasskey> {
        if assertion.response.user_handle.is_none() {
            return Err(InvalidPasskey::User);
        }
        self.verify(assertion, stored, challenge)
    }

    fn check_client_data(&self, json: &[u8], kind: &str, challenge: &[u8]) -> Result<(), InvalidPasskey> {
        let malformed = InvalidPasskey::Malformed("clientDataJSON");
        let data: ClientData = serde_json::from_slice(json).map_err(|_| malformed)?;
        if data.kind != kind {
            return Err(malformed);
        }
        if data.challenge != encode(challenge) {
            return Err(InvalidPasskey::Challenge);
        }
        if data.origin != self.origin || data.cross_origin {
            return Err(InvalidPasskey::Origin);
        }
        Ok(())
    }

    fn authenticator_data<'a>(&self, data: &'a [u8]) -> Result<AuthenticatorData<'a>, InvalidPasskey> {
        let malformed = InvalidPasskey::Malformed("authenticatorData");
        let (hash, rest) = data.split_first_chunk::<32>().ok_or(malformed)?;
        let ([flags, counter @ ..], rest) = rest.split_first_chunk::<5>().ok_or(malformed)?;
        if hash[..] != Sha256::digest(self.id.as_bytes())[..] {
            return Err(InvalidPasskey::RelyingParty);
        }
        if flags & USER_PRESENT == 0 || flags & USER_VERIFIED == 0 {
            return Err(InvalidPasskey::Unverified);
        }
        if flags & BACKED_UP != 0 && flags & BACKUP_ELIGIBLE == 0 {
            return Err(malformed);
        }
        Ok(AuthenticatorData { flags: *flags, sign_count: u32::from_be_bytes(*counter), rest })
    }
}

impl LoginChallenge {
    /// Creates a challenge.
    pub(crate) fn issue(keys: &LimiterKeys, entropy: &dyn Entropy, now: DateTime<Utc>) -> Self {
        let expires_at = (now + CHALLENGE_TTL).trunc_subsecs(3);
        let mut bytes = vec![0; NONCE_LEN];
        entropy.fill(&mut bytes);
        bytes.extend(expires_at.timestamp_millis().to_be_bytes());
        let mac = keys.sign_challenge(&bytes);
        bytes.extend(mac);
        Self { bytes, expires_at }
    }

    /// Returns the challenge that an assertion answers; `None` if it is expired or another one.
    pub(crate) fn of(assertion: &Assertion, keys: &LimiterKeys, now: DateTime<Utc>) -> Option<Self> {
        let json = decode(&assertion.response.client_data_json, "clientDataJSON").ok()?;
        let data: ClientData = serde_json::from_slice(&json).ok()?;
        let bytes = decode(&data.challenge, "challenge").ok()?;
        let (signed, mac) = bytes.split_at_checked(NONCE_LEN + EXPIRY_LEN)?;
        let expiry = signed.last_chunk::<EXPIRY_LEN>().filter(|_| keys.has_signed_challenge(signed, mac))?;
        let expires_at = DateTime::from_timestamp_millis(i64::from_be_bytes(*expiry))?;
        (expires_at > now).then_some(Self { bytes, expires_at })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn expires_at(&self) -> DateTime<Utc> {
        self.expires_at
    }
}

impl NewPasskey {
    /// The name of the factor in RFC 8176.
    pub(crate) const fn amr(&self) -> AuthMethod {
        if self.backup_eligible { AuthMethod::Swk } else { AuthMethod::Hwk }
    }
}

impl<'a> PublicKey<'a> {
    /// Parses a `COSE_Key` (RFC 9053, RFC 8230). Returns it with the bytes after it; `None` for other algorithms. Authenticators have
    /// only one encoding: CTAP2 canonical CBOR without optional parameters (section 6.5.1.1).
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        if let Some(rest) = bytes.strip_prefix(b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20") {
            let (x, rest) = rest.split_first_chunk::<32>()?;
            let (y, rest) = rest.strip_prefix(b"\x22\x58\x20")?.split_first_chunk::<32>()?;
            let mut point = [4; 65];
            point[1..33].copy_from_slice(x);
            point[33..].copy_from_slice(y);
            return Some((Self::Es256(point), rest));
        }
        if let Some(rest) = bytes.strip_prefix(b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20") {
            let (key, rest) = rest.split_at_checked(32)?;
            return Some((Self::EdDsa(key), rest));
        }
        let rest = bytes.strip_prefix(b"\xa4\x01\x03\x03\x39\x01\x00\x20\x59")?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (modulus, rest) = rest.split_at_checked(length).filter(|_| (256..=1024).contains(&length))?;
        Some((Self::Rs256(modulus), rest.strip_prefix(b"\x21\x43\x01\x00\x01")?))
    }

    /// Returns whether a P-256 key is a point of the curve. ring checks a point only when it is used, and a key agreement needs no
    /// signature. It has no such check for the other algorithms.
    fn is_on_curve(&self) -> bool {
        let Self::Es256(point) = self else { return true };
        let Ok(own) = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()) else { return false };
        agree_ephemeral(own, &agreement::UnparsedPublicKey::new(&ECDH_P256, point), |_| ()).is_ok()
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
            }
            Self::EdDsa(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            Self::Rs256(modulus) => RsaPublicKeyComponents { n: *modulus, e: &[1, 0, 1][..] }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
        };
        verified.is_ok()
    }
}

/// Returns the credential id, and the bytes after it (section 6.5.1).
fn attested_credential(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_model, rest) = bytes.split_at_checked(16)?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    rest.split_at_checked(length).filter(|_| (1..=MAX_CREDENTIAL_ID).contains(&length))
}

fn descriptors<'a>(ids: impl Iterator<Item = &'a [u8]>) -> Vec<Value> {
    ids.map(|id| json!({ "type": "public-key", "id": encode(id) })).collect()
}

fn encode(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

fn decode(text: &str, name: &'static str) -> Result<Vec<u8>, InvalidPasskey> {
    BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| InvalidPasskey::Malformed(name))
}

/// Returns the credential id of an assertion.
pub(crate) fn credential_id(assertion: &Assertion) -> Option<Vec<u8>> {
    decode(&assertion.id, "id").ok().filter(|id| id.len() <= MAX_CREDENTIAL_ID)
}

/// Returns the user handle that an assertion of a discoverable passkey contains, if it is one of ours.
pub(crate) fn user_handle(assertion: &Assertion) -> Option<Uuid> {
    let handle = decode(assertion.response.user_handle.as_deref()?, "userHandle").ok()?;
    Uuid::from_slice(&handle).ok()
}

/// The credential id, key, counter and eligibility for backup of a registration, and the new counter of an assertion of a passkey with
/// this key and the counter 5. Both have this client data and authenticator data, and the assertion has the signature.
#[cfg(fuzzing)]
#[expect(clippy::type_complexity, reason = "only fuzzing uses it")]
pub fn fuzzed(
    [client_data, data, signature]: [&[u8]; 3],
    challenge: &[u8],
    key: &[u8],
) -> (Option<(Vec<u8>, Vec<u8>, u32, bool)>, Option<u32>) {
    use contract::factors::{AssertionResponse, RegistrationResponse};
    let Ok(url) = "https://svc.example".parse() else { return (None, None) };
    let Some(party) = RelyingParty::new(&url, "svc") else { return (None, None) };
    let credential = data.get(37..).and_then(attested_credential);
    let registration = Registration {
        id: encode(credential.map_or(&[], |(id, _)| id)),
        response: RegistrationResponse {
            client_data_json: encode(client_data),
            authenticator_data: encode(data),
        },
    };
    let registered = party.register(&registration, challenge).ok().map(|passkey| {
        (passkey.credential_id, passkey.public_key, passkey.sign_count, passkey.backup_eligible)
    });
    let stored = StoredPasskey {
        factor_id: FactorId::generate(),
        user_handle: Uuid::nil(),
        passkey: NewPasskey {
            credential_id: vec![1],
            public_key: key.to_vec(),
            sign_count: 5,
            backup_eligible: false,
        },
    };
    let assertion = Assertion {
        id: encode(&[1]),
        response: AssertionResponse {
            client_data_json: encode(client_data),
            authenticator_data: encode(data),
            signature: encode(signature),
            user_handle: None,
        },
    };
    (registered, party.verify(&assertion, &stored, challenge).ok())
}

#[cfg(test)]
mod tests;
