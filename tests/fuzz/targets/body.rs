//! Compressed bodies of events: the result is at most as large as permitted, and equal to the decompression by the libraries.

#![no_main]

use std::io::Read;
use std::sync::LazyLock;

use ingest::fuzzed_body;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

const MAX: usize = 64 * 1024;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));

fn without_byte_order_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (kind, encoding, body) = input;
    let encoding: &[u8] = match kind % 4 {
        0 => b"identity",
        1 => b"gzip",
        2 => b"zstd",
        _ => encoding,
    };
    if http_header(encoding).is_none() {
        return;
    }
    let Some(accepted) = RUNTIME.block_on(fuzzed_body(encoding, body.to_vec(), MAX)) else { return };
    assert!(accepted.len() <= MAX);
    let mut expected = Vec::new();
    match encoding.to_ascii_lowercase().as_slice() {
        b"gzip" | b"x-gzip" => {
            flate2::read::MultiGzDecoder::new(body).read_to_end(&mut expected).expect("the body is gzip");
        }
        b"zstd" => expected = zstd::decode_all(body).expect("the body is zstd"),
        b"identity" => expected.extend(body),
        other => panic!("accepted the encoding {other:?}"),
    }
    assert_eq!(accepted, without_byte_order_mark(&expected));
});

fn http_header(value: &[u8]) -> Option<http::HeaderValue> {
    http::HeaderValue::from_bytes(value).ok()
}
