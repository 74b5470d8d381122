//! JSON bodies, media types, languages, and query parameters of lists.

#![no_main]

use axum::extract::FromRequestParts;
use contract::identity::{AcceptInvite, InviteUser, Login};
use contract::session::CreateApiKey;
use futures::FutureExt;
use http::header::{ACCEPT_LANGUAGE, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderValue, Request};
use identity::fuzzed_language;
use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use serde_json::Value;
use service::http::{Paging, body};
use tenancy::UserId;

/// Compares the result with that of serde_json.
fn check<T: DeserializeOwned>(bytes: &[u8]) {
    let json = body::without_byte_order_mark(bytes);
    let is_object = serde_json::from_slice::<Value>(json).is_ok_and(|value| value.is_object());
    let expected = serde_json::from_slice::<T>(json).is_ok();
    let accepted = body::parse::<T>(bytes).is_ok();
    assert_eq!(accepted, expected && is_object);
}

fuzz_target!(|input: (&[u8], &[u8], &str, &[u8])| {
    let (json, header, query, cookie) = input;
    check::<InviteUser>(json);
    check::<AcceptInvite>(json);
    check::<Login>(json);
    check::<CreateApiKey>(json);

    let mut headers = HeaderMap::new();
    for (name, value) in [(CONTENT_TYPE, header), (ACCEPT_LANGUAGE, header), (COOKIE, cookie)] {
        headers.extend(HeaderValue::from_bytes(value).ok().map(|value| (name, value)));
    }
    if body::is_json(&headers) {
        let media_type = body::media_type(&headers).expect("a JSON type is a type");
        assert!(media_type.to_ascii_lowercase().ends_with("json"), "{media_type}");
    }
    assert!(["en", "de"].contains(&fuzzed_language(&headers)));

    if let Ok(request) = Request::builder().uri(format!("/x?{query}")).body(()) {
        let mut parts = request.into_parts().0;
        let paging = Paging::<UserId>::from_request_parts(&mut parts, &()).now_or_never();
        if let Ok(page) = paging.expect("no part of the request is awaited") {
            assert!((1..=200).contains(&page.limit()));
        }
    }
});
