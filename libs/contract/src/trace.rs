//! Whose child a request is: W3C Trace Context, as servers, clients and messages pass it on.

use std::fmt;

/// The flags that level 2 of the standard gives a meaning: sampled, and random trace id.
const KNOWN_FLAGS: u8 = 0b11;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 0b01;

/// A place in a trace: whose child the next span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Which trace; never 0.
    pub trace_id: u128,
    /// Which span of it; never 0.
    pub span_id: u64,
    /// Whether it is recorded (bit 0) and whether the trace's id is random (bit 1).
    pub flags: u8,
}

impl TraceContext {
    /// Reads a `traceparent`; of a later version, what this one knows of it. `None` when it is malformed.
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

    /// The first place in a trace, from bytes that are random. Of nothing but zeros there is none.
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

/// A field of exactly so many digits, at most 32, in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes = Some(text.as_bytes()).filter(|bytes| bytes.len() == digits)?;
    bytes.iter().try_fold(0, |number, byte| Some(number << 4 | u128::from(digit(*byte)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_the_standard_forbids_is_no_context() {
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
    fn of_a_later_version_the_known_part_is_taken() {
        let later =
            TraceContext::parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-more").unwrap();
        assert_eq!(later.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03");
    }

    #[test]
    fn a_trace_that_begins_is_recorded_and_never_without_a_number() {
        let begun = TraceContext::begin(std::array::from_fn(|index| u8::try_from(index).unwrap())).unwrap();
        assert_eq!(begun.to_string(), "00-000102030405060708090a0b0c0d0e0f-1011121314151617-01");
        assert_eq!(TraceContext::begin([0; 24]), None);
    }

    proptest! {
        #[test]
        fn a_context_survives_its_header(trace_id in 1_u128.., span_id in 1_u64.., flags in 0_u8..4) {
            let context = TraceContext { trace_id, span_id, flags };
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,80}") {
            if let Some(context) = TraceContext::parse(&text) {
                prop_assert!(context.trace_id != 0 && context.span_id != 0);
            }
        }
    }
}
