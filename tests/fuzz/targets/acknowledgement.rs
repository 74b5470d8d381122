//! What NATS sends after a message was published. An acknowledgement is JSON with the name of this stream and a number, and no error.
//! A part of an operation of the protocol is not taken for a complete one.

#![no_main]

use bus::{fuzzed_operations, fuzzed_reply};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|payload: &[u8]| {
    fuzzed_operations(payload);
    if let Some(Ok(ack)) = fuzzed_reply("UDM", payload) {
        // A field without a use can contain text that is not valid Unicode.
        let Ok(reply) = serde_json::from_slice::<Value>(payload) else { return };
        assert_eq!(reply["stream"], "UDM");
        assert_eq!(reply["seq"].as_u64(), Some(ack.sequence));
        assert!(reply.get("error").is_none_or(Value::is_null));
        assert_eq!(ack.duplicate, reply.get("duplicate").is_some_and(|duplicate| *duplicate == true));
    }
});
