//! W3C Trace Context in requests and messages.

use std::fmt;

/// Flags of W3C Trace Context level 2: sampled and random trace id.
const KNOWN_FLAGS: u8 = 0b11;
/// Flag of a recorded trace.
const SAMPLED: u8 = 0b01;

/// Parent of the next span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace id, never 0.
    pub trace_id: u128,
    /// Span id, never 0.
    pub span_id: u64,
    /// Bit 0: the trace is recorded. Bit 1: the trace id is random.
    pub flags: u8,
}

impl TraceContext {
    /// Parses a `traceparent`. Unknown fields and flags of later versions are ignored. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('-');
        let version = hex(fields.next()?, 2)?;
        let trace_id = hex(fields.next()?, 32)?;
        let span_id = u64::try_from(hex(fields.next()?, 16)?).ok()?;
        let flags = u8::try_from(hex(fields.next()?, 2)?).ok()? & KNOWN_FLAGS;
        let complete = version != 0 || fields.next().is_none();
        let valid = version != 0xff && trace_id != 0 && span_id != 0 && complete;
        valid.then_some(Self { trace_id, span_id, flags })
    }

    /// Starts a trace with random bytes. `None` if an id would be 0.
    pub fn begin(random: [u8; 24]) -> Option<Self> {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        let (trace_id, span_id) = (number(&random[..16]), u64::try_from(number(&random[16..])).ok()?);
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, flags: SAMPLED })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// Parses a field of exactly `digits` lower-case hexadecimal digits, at most 32.
fn hex(text: &str, digits: usize) -> Option<u128> {
    // The standard library also accepts a sign and upper case.
    let is_valid = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| is_valid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn rejects_malformed_contexts() {
        assert!(TraceContext::parse(SAMPLE).is_some());
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn later_versions_are_parsed_as_far_as_known() {
        let later =
            TraceContext::parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-more").unwrap();
        assert_eq!(later.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03");
    }

    #[test]
    fn a_new_trace_is_recorded_and_has_ids() {
        let started = TraceContext::begin(std::array::from_fn(|index| u8::try_from(index).unwrap())).unwrap();
        assert_eq!(started.to_string(), "00-000102030405060708090a0b0c0d0e0f-1011121314151617-01");
        assert_eq!(TraceContext::begin([0; 24]), None);
    }

    proptest! {
        #[test]
        fn context_round_trips(trace_id in 1_u128.., span_id in 1_u64.., flags in 0_u8..4) {
            let context = TraceContext { trace_id, span_id, flags };
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn parser_accepts_arbitrary_text_without_panic(text in "\\PC{0,80}") {
            if let Some(context) = TraceContext::parse(&text) {
                prop_assert!(context.trace_id != 0 && context.span_id != 0);
            }
        }
    }
}
