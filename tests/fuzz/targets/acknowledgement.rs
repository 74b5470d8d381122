//! Replies of a stream to a published message: an acknowledgement is JSON with the name of this stream and a number, and no error.

#![no_main]

use bus::fuzzed_reply;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|payload: &[u8]| {
    if let Some(Ok(ack)) = fuzzed_reply("UDM", payload.to_vec()) {
        // A field without a use can contain text that is not valid Unicode.
        let Ok(reply) = serde_json::from_slice::<Value>(payload) else { return };
        assert_eq!(reply["stream"], "UDM");
        assert_eq!(reply["seq"].as_u64(), Some(ack.sequence));
        assert!(reply.get("error").is_none_or(Value::is_null));
        assert_eq!(ack.duplicate, reply.get("duplicate").is_some_and(|duplicate| *duplicate == true));
    }
});
