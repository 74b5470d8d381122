//! E-mail addresses, and client addresses in `X-Forwarded-For`.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use identity::fuzzed_email;
use libfuzzer_sys::fuzz_target;
use service::http::fuzzed_client;

const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

fuzz_target!(|input: (&str, &str, Vec<&[u8]>)| {
    let (text, trusted, values) = input;

    let (email, login) = fuzzed_email(text);
    if let Some((typed, key)) = email {
        assert_eq!(key, login, "a login finds the account");
        assert!(typed.len() <= 254 && key.len() <= 254);
        assert!(!typed.contains(['\r', '\n', '<', '>']), "an address is one header field");
        let (again, _) = fuzzed_email(&typed);
        assert_eq!(again, Some((typed, key.clone())), "the stored address is valid");
        assert_eq!(fuzzed_email(&key).1, key, "the key is its own key");
    } else {
        assert_eq!(login, "unusable");
    }

    let peer = SocketAddr::from(([10, 0, 0, 1], 4000));
    let headers: HeaderMap =
        values.iter().filter_map(|value| Some((FORWARDED, HeaderValue::from_bytes(value).ok()?))).collect();
    if let Some(client) = fuzzed_client(trusted, peer, &headers)
        && client != peer.ip()
    {
        let entries = headers.values().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let sent = entries.filter_map(|entry| std::str::from_utf8(entry).ok());
        let address = |entry: &str| -> Option<IpAddr> {
            let entry = entry.trim();
            let address = entry.parse().ok().or_else(|| Some(entry.parse::<SocketAddr>().ok()?.ip()));
            address.map(|address: IpAddr| address.to_canonical())
        };
        assert!(sent.filter_map(address).any(|sent| sent == client), "{client} is in no header");
    }
});
