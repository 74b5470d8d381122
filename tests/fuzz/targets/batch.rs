//! A JSON list of events, compared with serde_json, and its lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use udm::SplitError;

fuzz_target!(|body: &[u8]| {
    let list = serde_json::from_slice::<Vec<Box<RawValue>>>(body);
    match udm::split_list(body).collect::<Result<Vec<_>, _>>() {
        Ok(items) => {
            let list = list.expect("a valid list is JSON");
            assert!(items.iter().copied().eq(list.iter().map(|item| item.get().as_bytes())));
        }
        Err(SplitError::TooMany) => assert!(!list.is_ok_and(|list| list.len() <= udm::MAX_BATCH_EVENTS)),
        Err(_) => assert!(list.is_err()),
    }
    if let Ok(lines) = udm::split_lines(body).collect::<Result<Vec<_>, _>>() {
        assert!(lines.iter().all(|line| !line.is_empty() && !line.contains(&b'\n')));
        let bytes = |text: &[u8]| text.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
        let has_mark = body.windows(3).any(|bytes| bytes == b"\xef\xbb\xbf");
        assert!(has_mark || lines.iter().map(|line| bytes(line)).sum::<usize>() == bytes(body));
    }
});
