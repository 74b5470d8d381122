//! Files that the command line reads: events, rejected events, checkpoints, configuration and credentials. Compared with serde_json.

#![no_main]

use cli::{fuzzed_checkpoint, fuzzed_configuration, fuzzed_credentials, fuzzed_events};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

/// Checks that a file that was read and written is valid, and does not change any more.
fn check(file: &[u8], read_and_write: impl Fn(&[u8]) -> Option<String>) {
    let Some(written) = read_and_write(file) else { return };
    assert_eq!(read_and_write(written.as_bytes()), Some(written));
}

fuzz_target!(|input: (u64, &[u8])| {
    let (number, file) = input;

    if let Some(items) = fuzzed_events(file) {
        assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0), "the numbers increase");
        let valid = items.iter().filter_map(|(_, item)| item.as_ref().ok());
        assert!(valid.clone().all(|json| serde_json::from_str::<&RawValue>(json).is_ok()));
        let list: Vec<&RawValue> = serde_json::from_slice(file).unwrap_or_default();
        if !list.is_empty() && list.iter().all(|item| !item.get().starts_with(['{', '['])) {
            assert!(valid.eq(list.iter().map(|item| item.get())));
        }
    }

    // Events have numbers from 1.
    let event = number % (1 << 40) + 1;
    check(file, |file| fuzzed_checkpoint(file, event));
    check(file, fuzzed_configuration);
    check(file, fuzzed_credentials);
});
