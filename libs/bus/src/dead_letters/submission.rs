//! A dead letter as a consumer sends it. Only known headers are stored: others, such as those of NATS, are instructions for the stream.

use bytes::Bytes;
use tenancy::TenantId;

use super::{ATTEMPTS, QUARANTINE, REASON, SEQUENCE, STREAM, SUBJECT_PREFIX};
use crate::Message;
use crate::message::{EVENT_HEADERS, HeaderLines, MESSAGE_ID, digest_id};

/// Maximum size of the payload. The accounts of consumers limit that of headers and payload to the same size.
pub(crate) const MAX_DEAD_LETTER: usize = 8 * 1024;
/// Maximum number of characters of the reason.
const MAX_REASON: usize = 500;
const OWN_HEADERS: [&str; 4] = [REASON, ATTEMPTS, STREAM, SEQUENCE];
const VERSION: &str = "NATS/1.0";

/// Returns the message of a dead letter with these encoded headers; `None` if they are malformed. Its id follows from consumer, tenant and
/// the id that the consumer chose, and has another form than those of quarantined items, so that a consumer cannot suppress messages of
/// others.
pub(crate) fn submitted(
    consumer: &str,
    tenant: &TenantId,
    headers: &[u8],
    payload: Bytes,
) -> Option<Message> {
    if consumer == QUARANTINE {
        return None;
    }
    let fields = parse(headers)?;
    let find = |name: &str| fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
    let mut lines = HeaderLines::default();
    if let Some((_, id)) = find(MESSAGE_ID) {
        let id = digest_id([consumer.as_bytes(), tenant.as_str().as_bytes(), id.as_bytes()]);
        lines.push(MESSAGE_ID, &format!("dlq-{id}")).ok()?;
    }
    for name in EVENT_HEADERS.into_iter().chain(OWN_HEADERS) {
        if let Some((_, value)) = find(name) {
            let cut = if name == REASON { value.char_indices().nth(MAX_REASON) } else { None };
            lines.push(name, &value[..cut.map_or(value.len(), |(end, _)| end)]).ok()?;
        }
    }
    Some(Message::with_headers(format!("{SUBJECT_PREFIX}.{tenant}.{consumer}"), 0, lines, payload))
}

/// Returns names and values of encoded headers.
fn parse(headers: &[u8]) -> Option<Vec<(&str, &str)>> {
    if headers.is_empty() {
        return Some(Vec::new());
    }
    let mut lines = str::from_utf8(headers).ok()?.strip_prefix(VERSION)?.split("\r\n");
    // The rest of the first line.
    lines.next().filter(|status| status.trim().is_empty())?;
    let fields = lines.filter(|line| !line.is_empty());
    fields.map(|line| line.split_once(':').map(|(name, value)| (name, value.trim()))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dead_letter(consumer: &str, headers: &str) -> Option<Message> {
        let headers = format!("NATS/1.0\r\n{headers}\r\n");
        submitted(consumer, &"acme".parse().unwrap(), headers.as_bytes(), Bytes::from_static(b"{}"))
    }

    fn id(message: &Message) -> String {
        message.headers().get(MESSAGE_ID).unwrap().to_string()
    }

    #[test]
    fn only_known_headers_are_stored() {
        let headers = "ce-id: e:1\r\nCe-Source:fw\r\nNats-Expected-Last-Sequence: 1\r\nNats-Rollup: all\r\nNats-TTL: 1s\r\n\
            Nats-Request-Info: {}\r\nUdm-Dlq-Code: x\r\nUdm-Replay-For: x\r\nudm-dlq-reason: a: b\r\nother: x\r\n";
        let stored = dead_letter("siem", headers).unwrap();
        assert_eq!(stored.subject().as_str(), "udm.dlq.v1.acme.siem");
        let lines = String::from_utf8(stored.header_lines().concat()).unwrap();
        assert_eq!(lines, "ce-id: e:1\r\nce-source: fw\r\nUdm-Dlq-Reason: a: b\r\n");
    }

    #[test]
    fn a_long_reason_is_cut() {
        let stored = dead_letter("siem", &format!("Udm-Dlq-Reason: {}\r\n", "ü".repeat(501))).unwrap();
        let lines = String::from_utf8(stored.header_lines().concat()).unwrap();
        assert_eq!(lines, format!("Udm-Dlq-Reason: {}\r\n", "ü".repeat(500)));
    }

    #[test]
    fn message_ids_differ_between_consumers_and_from_those_of_quarantined_items() {
        let quarantined = "MqvEJdXWqhTlWGP_ZtmW1w";
        let headers = format!("Nats-Msg-Id: {quarantined}\r\n");
        let ids = ["siem", "archive"].map(|consumer| id(&dead_letter(consumer, &headers).unwrap()));
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| id.starts_with("dlq-") && id.len() == quarantined.len() + 4), "{ids:?}");
        assert_eq!(
            id(&dead_letter("siem", &headers).unwrap()),
            ids[0],
            "a repeated dead letter has the same id"
        );
    }

    #[test]
    fn malformed_headers_and_the_name_of_the_quarantine_are_rejected() {
        for headers in ["no colon\r\n", "ce-id: a\rb\r\n", "ce-id: a\nb\r\n"] {
            assert!(dead_letter("siem", headers).is_none(), "{headers:?}");
        }
        assert!(dead_letter(QUARANTINE, "").is_none());
        for headers in [&b"garbage"[..], b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\nx: \xff\r\n\r\n"] {
            assert!(submitted("siem", &"acme".parse().unwrap(), headers, Bytes::new()).is_none());
        }
    }

    proptest! {
        #[test]
        fn any_headers_are_rejected_or_stored_as_known_ones(headers: Vec<u8>, text: String, has_version: bool) {
            let tenant = "acme".parse().unwrap();
            let version = if has_version { "NATS/1.0\r\n" } else { "" };
            for headers in [headers, format!("{version}ce-id: {text}\r\n{text}\r\n\r\n").into_bytes()] {
                if let Some(message) = submitted("siem", &tenant, &headers, Bytes::new()) {
                    let lines = String::from_utf8(message.header_lines().concat()).unwrap();
                    for line in lines.split_terminator("\r\n") {
                        let (name, _) = line.split_once(": ").unwrap();
                        prop_assert!(name == MESSAGE_ID || EVENT_HEADERS.contains(&name) || OWN_HEADERS.contains(&name));
                    }
                }
            }
        }
    }
}
