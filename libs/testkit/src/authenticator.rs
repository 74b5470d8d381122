//! An authenticator with one passkey, and its browser (WebAuthn Level 3).

use data_encoding::BASE64URL_NOPAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use uuid::Uuid;

/// A passkey, and what its authenticator and its browser send. A test changes the fields to send something else.
pub struct Authenticator {
    key: Key,
    /// Origin of the page.
    pub origin: String,
    /// Whether the page is in a frame of another origin.
    pub cross_origin: bool,
    /// The relying party: the host of the origin.
    pub rp_id: String,
    /// User present, user verified, eligible for a backup, backed up: bits 0, 2, 3 and 4 (section 6.1).
    pub flags: u8,
    /// The counter of the next message. It does not change on its own.
    pub counter: u32,
    /// Id of the credential.
    pub credential_id: Vec<u8>,
    /// User handle of the last registration.
    pub user_handle: Option<String>,
}

enum Key {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Authenticator {
    /// An authenticator with a P-256 key at a page of the origin. Its user is verified.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn new(origin: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
        let host = origin.split("//").last().unwrap_or_default().split(':').next().unwrap_or_default();
        Self {
            key: Key::P256(key),
            origin: origin.to_owned(),
            cross_origin: false,
            rp_id: host.to_owned(),
            flags: 0b101,
            counter: 0,
            credential_id: Uuid::now_v7().as_bytes().to_vec(),
            user_handle: None,
        }
    }

    /// The same with an Ed25519 key.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn with_ed25519(origin: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key");
        Self { key: Key::Ed25519(key), ..Self::new(origin) }
    }

    /// Creates the passkey for creation options. Returns `RegistrationResponseJSON`.
    pub fn create(&mut self, options: &Value) -> Value {
        self.user_handle = options["user"]["id"].as_str().map(str::to_owned);
        let client_data = self.client_data("webauthn.create", &options["challenge"]);
        let mut data = self.data(self.flags | 1 << 6);
        let length = u16::try_from(self.credential_id.len()).expect("a short id");
        data.extend([0; 16]);
        data.extend(length.to_be_bytes());
        data.extend(&self.credential_id);
        data.extend(self.cose_key());
        json!({
            "id": encode(&self.credential_id), "rawId": encode(&self.credential_id), "type": "public-key",
            "clientExtensionResults": {}, "authenticatorAttachment": "platform",
            "response": {
                "clientDataJSON": encode(&client_data), "authenticatorData": encode(&data), "transports": ["internal"],
            },
        })
    }

    /// Signs request options. Returns `AuthenticationResponseJSON`.
    pub fn get(&self, options: &Value) -> Value {
        let client_data = self.client_data("webauthn.get", &options["challenge"]);
        let data = self.data(self.flags);
        let message = [&*data, digest(&SHA256, &client_data).as_ref()].concat();
        let signature = match &self.key {
            Key::P256(key) => {
                key.sign(&SystemRandom::new(), &message).expect("a signature").as_ref().to_vec()
            }
            Key::Ed25519(key) => key.sign(&message).as_ref().to_vec(),
        };
        json!({
            "id": encode(&self.credential_id), "rawId": encode(&self.credential_id), "type": "public-key",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": encode(&client_data), "authenticatorData": encode(&data),
                "signature": encode(&signature), "userHandle": self.user_handle,
            },
        })
    }

    fn client_data(&self, kind: &str, challenge: &Value) -> Vec<u8> {
        let data = json!({
            "type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": self.cross_origin,
            "other_keys_can_be_added_here": "do not compare clientDataJSON against a template",
        });
        data.to_string().into_bytes()
    }

    fn data(&self, flags: u8) -> Vec<u8> {
        let rp_id = digest(&SHA256, self.rp_id.as_bytes());
        [rp_id.as_ref(), &[flags], &self.counter.to_be_bytes()].concat()
    }

    /// RFC 9053, sections 7.1.1 and 7.2.
    fn cose_key(&self) -> Vec<u8> {
        match &self.key {
            Key::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                [&b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20"[..], x, b"\x22\x58\x20", y].concat()
            }
            Key::Ed25519(key) => {
                [&b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20"[..], key.public_key().as_ref()].concat()
            }
        }
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}
