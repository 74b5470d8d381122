//! Quarantined items: items of requests that are not valid events. ingest stores them as dead letters of the tenant, under a name that is
//! not the name of a consumer.

use bytes::Bytes;
use contract::consumers::QuarantineDetails;
use tenancy::TenantId;

use crate::dead_letters::{QUARANTINE, REASON, SUBJECT_PREFIX};
use crate::message::{CE_ID, CE_SOURCE, CREDENTIAL, HeaderLines, MESSAGE_ID, REQUEST_ID};
use crate::message::{digest_id, message_id, source_uri};
use crate::subject::InvalidSubject;
use crate::{DeadLetter, EventContext, Message};

/// Code of the problem of the item.
const CODE: &str = "Udm-Dlq-Code";
/// Number of the part and of all parts, if the item is stored in several messages.
const PART: &str = "Udm-Dlq-Part";
/// Maximum size of the bytes in one message. The other part of a message is for the headers.
const MAX_BYTES: usize = udm::MAX_EVENT_BYTES;
/// Maximum size of the reason. Names of fields in it are chosen by the sender.
const MAX_REASON: usize = 4096;

/// Returns the subject of the quarantined items of one tenant, or the filter for those of all tenants.
pub fn quarantine_subject(tenant: Option<&TenantId>) -> String {
    format!("{SUBJECT_PREFIX}.{}.{QUARANTINE}", tenant.map_or("*", TenantId::as_str))
}

/// Returns an id that follows from the bytes of an item and its number among equal items of its request. Therefore, a repeated
/// request has the same ids, and equal items of a request have different ones.
pub fn content_id(item: &[u8], number: usize) -> String {
    digest_id([number.to_string().as_bytes(), item])
}

/// An item to quarantine.
#[derive(Clone, Debug)]
pub struct QuarantinedItem<'a> {
    /// Identifies the item, see [`content_id`].
    pub content_id: &'a str,
    /// Id of the event if it has a valid one, else the content id.
    pub event_id: &'a str,
    /// Source of the event, if it has a valid one.
    pub source_id: Option<&'a str>,
    /// Code of the problem.
    pub code: &'a str,
    /// Description of the problem.
    pub reason: &'a str,
    /// The bytes of the sender.
    pub bytes: &'a [u8],
}

impl QuarantinedItem<'_> {
    /// Returns the message of the item, or its parts if it is larger than 256 KiB.
    ///
    /// # Errors
    /// An id contains a line break.
    pub fn messages(&self, context: &EventContext) -> Result<Vec<Message>, InvalidSubject> {
        if self.bytes.len() > MAX_BYTES {
            return self.parts(context);
        }
        self.part(context, self.content_id, self.bytes, None).map(|message| vec![message])
    }

    /// Returns the messages that together contain all bytes of the item, of which each has the number of its part.
    ///
    /// # Errors
    /// An id contains a line break.
    pub fn parts(&self, context: &EventContext) -> Result<Vec<Message>, InvalidSubject> {
        let parts = self.bytes.chunks(MAX_BYTES);
        let count = parts.len();
        let message = |(index, part)| {
            let number = (PART, format!("{}/{count}", index + 1));
            self.part(context, &format!("{}/{index}", self.content_id), part, Some(number))
        };
        parts.enumerate().map(message).collect()
    }

    fn part(
        &self,
        context: &EventContext,
        id: &str,
        bytes: &[u8],
        extent: Option<(&str, String)>,
    ) -> Result<Message, InvalidSubject> {
        let tenant = context.tenant();
        let mut own = HeaderLines::default();
        // No event has an empty source.
        own.push(MESSAGE_ID, &message_id(tenant, "", id))?;
        own.push(CE_ID, self.event_id)?;
        if let Some(source_id) = self.source_id {
            own.push(CE_SOURCE, &source_uri(source_id))?;
        }
        own.push(CODE, self.code)?;
        own.push(REASON, &one_line(self.reason))?;
        if let Some((name, value)) = extent {
            own.push(name, &value)?;
        }
        // A copy: a slice would keep the whole body in memory until the last item is acknowledged.
        Ok(context.message(quarantine_subject(Some(tenant)), own, Bytes::copy_from_slice(bytes)))
    }
}

/// Returns at most [`MAX_REASON`] bytes of the text, with spaces in place of control characters.
fn one_line(reason: &str) -> String {
    let reason = reason.get(..reason.floor_char_boundary(MAX_REASON)).unwrap_or_default();
    reason.replace(char::is_control, " ")
}

impl DeadLetter {
    /// Returns the details of a quarantined item, without its bytes; `None` for the dead letter of a consumer.
    pub fn quarantine(&self) -> Option<QuarantineDetails> {
        let header = |name: &str| self.headers.get(name).map(|value| value.as_str().to_owned());
        (self.consumer == QUARANTINE).then(|| QuarantineDetails {
            code: header(CODE).unwrap_or_default(),
            request_id: header(REQUEST_ID),
            credential: header(CREDENTIAL),
            part: header(PART),
            payload: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> EventContext {
        let received_at = "2026-01-31T12:00:00Z".parse().unwrap();
        EventContext::new("acme".parse().unwrap(), received_at, "req-1", "key:k1", None)
    }

    fn item(bytes: &[u8]) -> QuarantinedItem<'_> {
        let source_id = Some("fw 1");
        QuarantinedItem {
            content_id: "c",
            event_id: "e",
            source_id,
            code: "malformed_json",
            reason: "a\nb",
            bytes,
        }
    }

    fn header(message: &Message, name: &str) -> Option<String> {
        message.headers().get(name).map(|value| value.as_str().to_owned())
    }

    #[test]
    fn message_has_the_reason_in_one_line_and_the_bytes() {
        let messages = item(b"\xffx").messages(&context()).unwrap();
        let [message] = &messages[..] else { panic!("{} messages", messages.len()) };
        assert_eq!(message.subject().as_str(), "udm.dlq.v1.acme._ingest");
        assert_eq!(message.payload().as_ref(), b"\xffx");
        for (name, value) in [
            ("ce-id", "e"),
            ("ce-source", "fw%201"),
            ("Udm-Dlq-Code", "malformed_json"),
            ("Udm-Dlq-Reason", "a b"),
            ("Udm-Request-Id", "req-1"),
            ("Udm-Credential", "key:k1"),
            ("Udm-Received-At", "1769860800000"),
        ] {
            assert_eq!(header(message, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(header(message, PART), None);
    }

    #[test]
    fn a_long_item_is_stored_in_parts_and_a_long_reason_is_cut() {
        for (length, parts) in [(0, 1), (MAX_BYTES, 1), (MAX_BYTES + 1, 2)] {
            let messages = item(&vec![b'x'; length]).messages(&context()).unwrap();
            assert_eq!(messages.len(), parts, "{length} bytes");
            assert_eq!(messages.iter().map(|message| message.payload().len()).sum::<usize>(), length);
        }
        let reason = "ä".repeat(MAX_REASON);
        let messages = QuarantinedItem { reason: &reason, ..item(b"") }.messages(&context()).unwrap();
        assert_eq!(header(&messages[0], REASON).unwrap().len(), MAX_REASON);
    }

    #[test]
    fn parts_contain_all_bytes_and_have_different_ids() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2 * MAX_BYTES + 7).collect();
        let parts = item(&bytes).parts(&context()).unwrap();
        assert_eq!(parts.iter().flat_map(|part| part.payload().to_vec()).collect::<Vec<_>>(), bytes);
        let numbers: Vec<_> = parts.iter().filter_map(|part| header(part, PART)).collect();
        assert_eq!(numbers, ["1/3", "2/3", "3/3"]);
        let ids: std::collections::HashSet<_> = parts.iter().map(|part| header(part, MESSAGE_ID)).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn content_id_follows_from_bytes_and_number() {
        let ids = [content_id(b"a", 0), content_id(b"a", 1), content_id(b"b", 0), content_id(b"", 0)];
        assert!(ids.iter().all(|id| id.len() == 22), "{ids:?}");
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 4);
        assert_eq!(content_id(b"a", 0), ids[0]);
    }
}
