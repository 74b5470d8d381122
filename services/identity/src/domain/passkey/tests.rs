use chrono::TimeDelta;
use contract::factors::AssertionResponse;
use hashing::SystemEntropy;
use proptest::prelude::*;
use testkit::Authenticator;

use super::*;

const ORIGIN: &str = "https://svc.example";
const CHALLENGE: &[u8] = &[7; 32];
const HANDLE: Uuid = Uuid::from_bytes([9; 16]);

fn party() -> RelyingParty {
    RelyingParty::new(&ORIGIN.parse().unwrap(), "svc").unwrap()
}

fn create(authenticator: &mut Authenticator, challenge: &[u8]) -> Registration {
    let options = party().creation_options(challenge, HANDLE, ("ada", "ada"), std::iter::empty());
    serde_json::from_value(authenticator.create(&options)).unwrap()
}

fn get(authenticator: &Authenticator, challenge: &[u8]) -> Assertion {
    let options = party().request_options(challenge, std::iter::empty());
    serde_json::from_value(authenticator.get(&options)).unwrap()
}

fn registered(mut authenticator: Authenticator) -> (Authenticator, StoredPasskey) {
    let registration = create(&mut authenticator, CHALLENGE);
    let passkey = party().register(&registration, CHALLENGE).unwrap();
    let stored = StoredPasskey { factor_id: FactorId::generate(), user_handle: HANDLE, passkey };
    (authenticator, stored)
}

/// Changes what an authenticator sends.
type Change = fn(&mut Authenticator);

/// Messages of an authenticator that is changed in one way, and the error that each causes. The same for both ceremonies.
fn changes() -> [(&'static str, Change, InvalidPasskey); 7] {
    let malformed = InvalidPasskey::Malformed("authenticatorData");
    [
        ("another origin", |sent| sent.origin = "https://svc.example.net".into(), InvalidPasskey::Origin),
        ("another port", |sent| sent.origin = "https://svc.example:8443".into(), InvalidPasskey::Origin),
        ("a frame of another page", |sent| sent.cross_origin = true, InvalidPasskey::Origin),
        ("a parent domain", |sent| sent.rp_id = "example".into(), InvalidPasskey::RelyingParty),
        ("no verification of the user", |sent| sent.flags = 1, InvalidPasskey::Unverified),
        ("no presence of the user", |sent| sent.flags = 1 << 2, InvalidPasskey::Unverified),
        ("a copy of what cannot be copied", |sent| sent.flags = 0b1_0101, malformed),
    ]
}

#[test]
fn a_passkey_of_each_algorithm_registers_and_logs_in() {
    for authenticator in [Authenticator::new(ORIGIN), Authenticator::with_ed25519(ORIGIN)] {
        let (mut authenticator, stored) = registered(authenticator);
        assert_eq!(stored.passkey.credential_id, authenticator.credential_id);
        assert_eq!(party().verify(&get(&authenticator, &[1; 32]), &stored, &[1; 32]), Ok(0));
        authenticator.counter = 5;
        assert_eq!(party().verify(&get(&authenticator, CHALLENGE), &stored, CHALLENGE), Ok(5));
    }
}

/// Signed by the Python package `cryptography`.
#[test]
fn an_rsa_signature_is_verified() {
    let modulus = decode(
        "1xw1a2PgnfOhtJmtB3J0ZLRcrVu9tR7KsJRehNj1gLfYl416QHij5ZORbk0o9xuqRXLjPYV1jeSCZg_vDrXSOBdj2ZMLSd59pH1jbAYThaiFb67t-GCP\
        Vypk2waqykytVehGNQ5wWHWcsnNjDLA5Omv4Mk65JsLWmtHrCLrPEcny1HOQXDM7x5GSJGU7Zjj89_k95JW9qxPZ-XsGGoFe0Y5QLWogvYV40eDshkPY\
        mf_EdHPlzZP-zlcO9CDV5D58fWVSb4cSVynpMzXKrpd1VW_rMzXtkIcS_suyB583yp0V9sXgycyXazrx3x_ILH5hd4pRq_Usji_dkmNXgrtUKQ",
        "n",
    )
    .unwrap();
    let public_key =
        [&b"\xa4\x01\x03\x03\x39\x01\x00\x20\x59\x01\x00"[..], &*modulus, b"\x21\x43\x01\x00\x01"].concat();
    let passkey = NewPasskey { credential_id: vec![1], public_key, sign_count: 6, backup_eligible: false };
    let stored = StoredPasskey { factor_id: FactorId::generate(), user_handle: HANDLE, passkey };
    let mut assertion = get(&Authenticator::new(ORIGIN), &[0; 32]);
    assertion.response = AssertionResponse {
        client_data_json: "eyJ0eXBlIjogIndlYmF1dGhuLmdldCIsICJjaGFsbGVuZ2UiOiAiQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQS\
            IsICJvcmlnaW4iOiAiaHR0cHM6Ly9zdmMuZXhhbXBsZSJ9".to_owned(),
        authenticator_data: "bxgkf8Pnu-Y0ZfY4P8V4lllajkdEpZXtsNam3ewvcyMFAAAABw".to_owned(),
        signature: "KAHtzITHre5vuPay0mtATOss8FDKSqgT1FUn9FKvhW6oQIV9TGcKIxabrl5qiS-5d2lGsRe13BGZQZzd5WZG4S-v6PLr2cir3iWDyySTJ7CiUHCe7mSp\
        Hqpm1mN36A5bURr1CjqWjB137xRVmsUqZJq21fknXMQPil7dt7_-Az7-E5SHEYiap4GBqma2P2DCOVrigP6c7jvgJz4v0rlkod9STEjgI2b7RGqQ1PcM\
        12nffLRr5GCHvyg8lTRq3J_X_pLgacABvGGNHMtI-9gzIUdbtEkX5VhJvwSGkRbN0Ni-8kVEYG8JWuyAFg30Dr6zOe34c01UHzly03OSs5CqRA".to_owned(),
        user_handle: None,
    };
    assert_eq!(party().verify(&assertion, &stored, &[0; 32]), Ok(7));
    assertion.response.signature.replace_range(..1, "L");
    assert_eq!(party().verify(&assertion, &stored, &[0; 32]), Err(InvalidPasskey::Signature));
}

#[test]
fn a_registration_of_another_page_user_or_request_is_rejected() {
    for (name, change, error) in changes() {
        let mut authenticator = Authenticator::new(ORIGIN);
        change(&mut authenticator);
        let registration = create(&mut authenticator, CHALLENGE);
        assert_eq!(party().register(&registration, CHALLENGE), Err(error), "{name}");
    }
    let mut authenticator = Authenticator::new(ORIGIN);
    let registration = create(&mut authenticator, &[8; 32]);
    assert_eq!(party().register(&registration, CHALLENGE), Err(InvalidPasskey::Challenge));
    let mut registration = create(&mut authenticator, CHALLENGE);
    registration.id = encode(b"another");
    assert_eq!(party().register(&registration, CHALLENGE), Err(InvalidPasskey::Malformed("id")));
    // An assertion is no registration: it has another type, and no key.
    let assertion = get(&authenticator, CHALLENGE).response;
    registration.response.client_data_json = assertion.client_data_json;
    let of_type = party().register(&registration, CHALLENGE);
    assert_eq!(of_type, Err(InvalidPasskey::Malformed("clientDataJSON")));
    let mut registration = create(&mut authenticator, CHALLENGE);
    registration.response.authenticator_data = assertion.authenticator_data;
    let without_key = party().register(&registration, CHALLENGE);
    assert_eq!(without_key, Err(InvalidPasskey::Malformed("authenticatorData")));
}

#[test]
fn a_key_of_an_unknown_algorithm_or_off_the_curve_and_bytes_after_the_key_are_rejected() {
    let mut authenticator = Authenticator::new(ORIGIN);
    let registration = create(&mut authenticator, CHALLENGE);
    let data = decode(&registration.response.authenticator_data, "data").unwrap();
    let register = |data: &[u8]| {
        let mut registration = registration.clone();
        registration.response.authenticator_data = encode(data);
        party().register(&registration, CHALLENGE)
    };
    let mut es384 = data.clone();
    let algorithm = data.len() - 77 + 4;
    es384[algorithm] = 0x38;
    assert_eq!(register(&es384), Err(InvalidPasskey::Algorithm));
    let mut off_curve = data.clone();
    *off_curve.last_mut().unwrap() ^= 1;
    assert_eq!(register(&off_curve), Err(InvalidPasskey::Key));
    let longer = [&*data, b"\xa0"].concat();
    assert_eq!(register(&longer), Err(InvalidPasskey::Malformed("authenticatorData")));
    let mut extended = longer;
    extended[32] |= HAS_EXTENSIONS;
    assert_eq!(register(&extended).unwrap().public_key, register(&data).unwrap().public_key);
}

#[test]
fn an_assertion_of_another_page_user_or_request_is_rejected() {
    for (name, change, error) in changes() {
        let (mut authenticator, stored) = registered(Authenticator::new(ORIGIN));
        change(&mut authenticator);
        assert_eq!(party().verify(&get(&authenticator, CHALLENGE), &stored, CHALLENGE), Err(error), "{name}");
    }
    let (mut authenticator, stored) = registered(Authenticator::new(ORIGIN));
    let verify = |assertion: &Assertion| party().verify(assertion, &stored, CHALLENGE);
    assert_eq!(verify(&get(&authenticator, &[8; 32])), Err(InvalidPasskey::Challenge), "a replay");
    let (other, _) = registered(Authenticator::new(ORIGIN));
    assert_eq!(verify(&get(&other, CHALLENGE)), Err(InvalidPasskey::Signature), "another passkey");
    let mut assertion = get(&authenticator, CHALLENGE);
    assertion.response.client_data_json = create(&mut authenticator, CHALLENGE).response.client_data_json;
    assert_eq!(verify(&assertion), Err(InvalidPasskey::Malformed("clientDataJSON")));
    authenticator.user_handle = Some(encode(&[8; 32]));
    assert_eq!(verify(&get(&authenticator, CHALLENGE)), Err(InvalidPasskey::User));
    authenticator.user_handle = None;
    assert_eq!(verify(&get(&authenticator, CHALLENGE)), Ok(0));
    authenticator.flags |= BACKUP_ELIGIBLE;
    let eligible = verify(&get(&authenticator, CHALLENGE));
    assert_eq!(eligible, Err(InvalidPasskey::Malformed("authenticatorData")), "it never changes");
}

#[test]
fn a_counter_grows_or_stays_zero() {
    for (stored_count, sent, is_accepted) in
        [(0, 0, true), (0, 1, true), (4, 5, true), (4, 4, false), (4, 3, false), (4, 0, false)]
    {
        let (mut authenticator, mut stored) = registered(Authenticator::new(ORIGIN));
        stored.passkey.sign_count = stored_count;
        authenticator.counter = sent;
        let verified = party().verify(&get(&authenticator, CHALLENGE), &stored, CHALLENGE);
        let expected = if is_accepted { Ok(sent) } else { Err(InvalidPasskey::Counter) };
        assert_eq!(verified, expected, "{stored_count} {sent}");
    }
}

fn keys(text: &str) -> LimiterKeys {
    LimiterKeys::parse(text).unwrap()
}

/// Returns the challenge that an assertion for a text answers, at some seconds after the start.
fn answered(challenge: &[u8], keys: &LimiterKeys, seconds: i64) -> Option<LoginChallenge> {
    let assertion = get(&Authenticator::new(ORIGIN), challenge);
    LoginChallenge::of(&assertion, keys, DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds))
}

#[test]
fn a_challenge_of_a_login_is_valid_for_five_minutes() {
    let keys = keys(&"k".repeat(32));
    let challenge = LoginChallenge::issue(&keys, &SystemEntropy, DateTime::UNIX_EPOCH);
    assert_eq!(answered(challenge.as_bytes(), &keys, 299).as_ref(), Some(&challenge));
    assert_eq!(answered(challenge.as_bytes(), &keys, 300), None);
    let other = LoginChallenge::issue(&keys, &SystemEntropy, DateTime::UNIX_EPOCH);
    assert_ne!(other, challenge, "each one is different");
}

#[test]
fn a_changed_challenge_and_one_of_another_installation_are_invalid() {
    let keys = keys(&"k".repeat(32));
    let challenge = LoginChallenge::issue(&keys, &SystemEntropy, DateTime::UNIX_EPOCH);
    let other = LimiterKeys::parse(&"o".repeat(32)).unwrap();
    assert_eq!(answered(challenge.as_bytes(), &other, 0), None);
    for at in 0..challenge.as_bytes().len() {
        let mut changed = challenge.as_bytes().to_vec();
        changed[at] ^= 1;
        assert_eq!(answered(&changed, &keys, 0), None, "byte {at}");
        assert_eq!(answered(&challenge.as_bytes()[..at], &keys, 0), None, "{at} bytes");
    }
}

#[test]
fn a_challenge_under_the_previous_key_is_valid() {
    let (old, new) = ("o".repeat(32), "n".repeat(32));
    let both = format!("{new}\n{old}");
    let steps = [keys(&old), keys(&both), keys(&new)];
    for (issuer, verifier) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)] {
        let challenge = LoginChallenge::issue(&steps[issuer], &SystemEntropy, DateTime::UNIX_EPOCH);
        let is_valid = answered(challenge.as_bytes(), &steps[verifier], 0).is_some();
        // Except in a replica that has not read the new key yet.
        assert_eq!(is_valid, (issuer, verifier) != (1, 0), "{issuer} {verifier}");
    }
}

#[test]
fn a_login_with_a_passkey_alone_needs_the_user_handle() {
    let (mut authenticator, stored) = registered(Authenticator::new(ORIGIN));
    let verify = |authenticator: &Authenticator| {
        party().verify_discoverable(&get(authenticator, CHALLENGE), &stored, CHALLENGE)
    };
    assert_eq!(verify(&authenticator), Ok(0));
    authenticator.user_handle = Some(encode(Uuid::from_bytes([8; 16]).as_bytes()));
    assert_eq!(verify(&authenticator), Err(InvalidPasskey::User));
    authenticator.user_handle = None;
    assert_eq!(verify(&authenticator), Err(InvalidPasskey::User));
}

#[test]
fn passkeys_need_a_host_name_and_tls_except_on_this_machine() {
    for (origin, id) in [
        ("https://svc.example", Some("svc.example")),
        ("https://svc.example:8443", Some("svc.example")),
        ("http://localhost:8080", Some("localhost")),
        ("http://svc.localhost", Some("svc.localhost")),
        ("http://svc.example", None),
        ("https://192.0.2.1", None),
        ("http://127.0.0.1:8080", None),
        ("https://[::1]:8080", None),
    ] {
        let party = RelyingParty::new(&origin.parse().unwrap(), "svc");
        assert_eq!(party.map(|party| party.id).as_deref(), id, "{origin}");
    }
}

proptest! {
    #[test]
    fn verifying_never_panics_and_accepts_no_unsigned_bytes(
        texts in prop::collection::vec(prop_oneof!["[A-Za-z0-9_-]{0,200}", ".{0,40}"], 4),
    ) {
        let (authenticator, stored) = registered(Authenticator::new(ORIGIN));
        let mut registration = create(&mut Authenticator::new(ORIGIN), CHALLENGE);
        registration.response.authenticator_data.clone_from(&texts[0]);
        prop_assert!(party().register(&registration, CHALLENGE).is_err());
        let valid = get(&authenticator, CHALLENGE);
        for (part, text) in texts[..3].iter().enumerate() {
            let mut assertion = valid.clone();
            let response = &mut assertion.response;
            let places = [&mut response.client_data_json, &mut response.authenticator_data, &mut response.signature];
            places.into_iter().nth(part).unwrap().clone_from(text);
            prop_assert!(party().verify(&assertion, &stored, CHALLENGE).is_err());
        }
    }

    #[test]
    fn a_changed_bit_of_a_signed_message_is_rejected(part in 0_usize..3, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let (authenticator, stored) = registered(Authenticator::with_ed25519(ORIGIN));
        let mut assertion = get(&authenticator, CHALLENGE);
        let response = &mut assertion.response;
        let places = [&mut response.client_data_json, &mut response.authenticator_data, &mut response.signature];
        let place = places.into_iter().nth(part).unwrap();
        let mut bytes = decode(place, "part").unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        *place = encode(&bytes);
        prop_assert!(party().verify(&assertion, &stored, CHALLENGE).is_err());
    }

    #[test]
    fn a_registration_that_is_cut_off_is_rejected(length in 0_usize..148) {
        let mut registration = create(&mut Authenticator::new(ORIGIN), CHALLENGE);
        let data = decode(&registration.response.authenticator_data, "data").unwrap();
        prop_assert_eq!(data.len(), 148);
        registration.response.authenticator_data = encode(&data[..length]);
        prop_assert!(party().register(&registration, CHALLENGE).is_err());
    }
}
