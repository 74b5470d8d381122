//! Messages of passkeys, compared with serde_json and ciborium.

#![no_main]

use ciborium::Value as Cbor;
use identity::fuzzed_passkey;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Base64url of the challenge `[7; 32]`.
const CHALLENGE: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
/// The generator of P-256 as a `COSE_Key`: the private key is 1.
const KEY: &[u8] = b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20\
    \x6b\x17\xd1\xf2\xe1\x2c\x42\x47\xf8\xbc\xe6\xe5\x63\xa4\x40\xf2\x77\x03\x7d\x81\x2d\xeb\x33\xa0\xf4\xa1\x39\x45\xd8\x98\xc2\x96\
    \x22\x58\x20\
    \x4f\xe3\x42\xe2\xfe\x1a\x7f\x9b\x8e\xe7\xeb\x4a\x7c\x0f\x9e\x16\x2b\xce\x33\x57\x6b\x31\x5e\xce\xcb\xb6\x40\x68\x37\xbf\x51\xf5";

// Client data, a zero byte, the length of the signature, the signature, authenticator data.
fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (Some(client_data), Some([length, rest @ ..])) = (parts.next(), parts.next()) else { return };
    let Some((signature, data)) = rest.split_at_checked(usize::from(*length)) else { return };
    let (registered, counter) = fuzzed_passkey([client_data, data, signature], &[7; 32], KEY);
    if let Some((id, key, sign_count, is_eligible)) = registered {
        let flags = check(client_data, data, "webauthn.create");
        assert_eq!(counter_of(data), sign_count);
        assert_eq!((flags & 0x40, flags & 8 != 0), (0x40, is_eligible));
        let rest = data[53..].strip_prefix(&u16::try_from(id.len()).expect("a short id").to_be_bytes()[..]);
        let extensions = rest.and_then(|rest| rest.strip_prefix(&*id)?.strip_prefix(&*key));
        assert_eq!(extensions.expect("the data contains them").is_empty(), flags & 0x80 == 0);
        check_key(&key);
    }
    if let Some(counter) = counter {
        check(client_data, data, "webauthn.get");
        assert!(counter > 5 && counter == counter_of(data));
        let signed = include_bytes!("../corpus/passkey/assertion");
        let length = client_data.len();
        assert_eq!((client_data, data), (&signed[..length], &signed[signed.len() - 37..]), "is signed");
    }
});

/// Checks what both ceremonies have in common. Returns the flags.
fn check(client_data: &[u8], data: &[u8], kind: &str) -> u8 {
    let json: Value = serde_json::from_slice(client_data).expect("serde_json reads it");
    assert_eq!((&json["type"], &json["challenge"]), (&kind.into(), &CHALLENGE.into()));
    assert!(json["origin"] == "https://svc.example" && json["crossOrigin"] != true);
    let flags = data[32];
    assert_eq!(flags & 5, 5, "the user was present and verified");
    assert!(flags & 0x10 == 0 || flags & 8 != 0);
    flags
}

fn counter_of(data: &[u8]) -> u32 {
    u32::from_be_bytes(data[33..37].try_into().expect("four bytes"))
}

/// Checks that a key is one map of CBOR with the parameters of its algorithm.
fn check_key(key: &[u8]) {
    let mut rest = key;
    let map: Cbor = ciborium::from_reader(&mut rest).expect("ciborium reads it");
    assert!(rest.is_empty());
    let members = map.as_map().expect("a map");
    let number = |value: &Cbor| i128::from(value.as_integer().expect("an integer"));
    let find = |name: i128| members.iter().find(|(key, _)| number(key) == name).map(|(_, value)| value);
    let length = |name| find(name).and_then(Cbor::as_bytes).map(Vec::len);
    match (number(find(1).expect("a type")), number(find(3).expect("an algorithm"))) {
        (2, -7) => assert_eq!((number(find(-1).expect("a curve")), length(-2), length(-3)), (1, Some(32), Some(32))),
        (1, -8) => assert_eq!((number(find(-1).expect("a curve")), length(-2)), (6, Some(32))),
        (3, -257) => {
            assert!((256..=1024).contains(&length(-1).expect("a modulus")));
            assert_eq!(find(-2).and_then(Cbor::as_bytes), Some(&vec![1, 0, 1]));
        }
        other => panic!("{other:?} is not supported"),
    }
}
