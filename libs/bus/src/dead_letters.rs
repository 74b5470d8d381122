//! Dead letters (`UDM_DLQ`): events that a consumer could not handle, which `libs/consumer` writes, and items that ingest has
//! [quarantined](crate::quarantine). The dead letter of a large event has no payload, and refers to the event in its stream.

mod space;
mod submission;

use std::num::NonZeroU64;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::{Context, ErrorCode};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tenancy::TenantId;

use crate::message::{CE_ID, CE_SOURCE, CE_TYPE, EVENT_HEADERS, EventContext, HeaderLines, MESSAGE_ID};
use crate::stored::{ReadFrom, first_message, message_at, request_optional, utc};
use crate::subject::{EventSubject, InvalidSubject};
use crate::{Connection, DEAD_LETTER_STREAM, EventStreams, Message, NotConnected};

pub use space::DeadLetterSpace;
pub(crate) use space::{Full, check_space};
pub(crate) use submission::{MAX_DEAD_LETTER, submitted};

pub(crate) const SUBJECT_PREFIX: &str = "udm.dlq.v1";
/// The name that quarantined items have in place of a consumer. It contains a character that the name of a consumer cannot contain.
pub const QUARANTINE: &str = "_ingest";
/// Headers that a consumer adds: why it gave up, the number of attempts, and the place of the event.
pub(crate) const REASON: &str = "Udm-Dlq-Reason";
const ATTEMPTS: &str = "Udm-Dlq-Attempts";
const STREAM: &str = "Udm-Dlq-Stream";
const SEQUENCE: &str = "Udm-Dlq-Sequence";
/// The consumer that a replayed event is for.
const REPLAY_FOR: &str = "Udm-Replay-For";

/// The stream of dead letters.
pub struct DeadLetters {
    context: Context,
    /// The streams that a dead letter can refer to.
    streams: EventStreams,
}

/// An event that a consumer could not handle, or an item that ingest has quarantined. Headers and payload are those of the event while
/// it is stored. Otherwise the consumer wrote them, so only tenant, consumer and time are certain.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Number in the stream of dead letters.
    pub sequence: u64,
    /// Tenant of the event.
    pub tenant_id: TenantId,
    /// Name of the consumer.
    pub consumer: String,
    /// Time at which the consumer gave up.
    pub failed_at: DateTime<Utc>,
    /// The bytes of the producer. Empty if the dead letter refers to an event that is not stored any more.
    pub payload: Bytes,
    pub(crate) headers: HeaderMap,
    /// Whether headers and payload are those of the stored event.
    is_event_stored: bool,
}

/// A request for dead letters failed: the broker did not answer, or rejected it.
#[derive(Debug, thiserror::Error)]
#[error("failed to read or delete dead letters")]
pub struct DeadLetterError(#[source] async_nats::Error);

impl DeadLetters {
    /// Uses the connection for a few requests. Does not wait for a broker that is down.
    ///
    /// # Errors
    /// No server is connected.
    pub fn over(connection: &Connection, streams: EventStreams) -> Result<Self, NotConnected> {
        Ok(Self { context: connection.jetstream()?, streams })
    }

    /// Returns the first dead letter of a consumer, for events of one tenant or of all, with this number or a later one.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn first_from(
        &self,
        tenant: Option<&TenantId>,
        consumer: &str,
        sequence: u64,
    ) -> Result<Option<DeadLetter>, DeadLetterError> {
        let tenant = tenant.map_or("*", TenantId::as_str);
        let filter = format!("{SUBJECT_PREFIX}.{tenant}.{consumer}");
        let mut from = ReadFrom::Sequence(sequence);
        loop {
            let found = first_message(&self.context, DEAD_LETTER_STREAM, &filter, from);
            let Some(message) = found.await.map_err(DeadLetterError)? else { return Ok(None) };
            from = ReadFrom::Sequence(message.sequence + 1);
            // Skips a message that is not a dead letter.
            if let Some(found) = DeadLetter::from_message(message) {
                return Ok(Some(self.with_event(found).await?));
            }
        }
    }

    /// Reads the event of a dead letter. It stays as it is if the stream has another event at this place, or none.
    async fn with_event(&self, letter: DeadLetter) -> Result<DeadLetter, DeadLetterError> {
        let Some((stream, sequence)) = letter.reference() else { return Ok(letter) };
        if !self.streams.names().contains(&stream) {
            return Ok(letter);
        }
        let found = message_at(&self.context, &stream, sequence).await.map_err(DeadLetterError)?;
        Ok(match found {
            Some(event) if letter.is_of(&event) => letter.with(event),
            _ => letter,
        })
    }

    /// Returns the dead letter of a consumer with this number.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn get(
        &self,
        tenant: Option<&TenantId>,
        consumer: &str,
        sequence: u64,
    ) -> Result<Option<DeadLetter>, DeadLetterError> {
        let found = self.first_from(tenant, consumer, sequence).await?;
        Ok(found.filter(|letter| letter.sequence == sequence))
    }

    /// Deletes a dead letter.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn delete(&self, letter: &DeadLetter) -> Result<(), DeadLetterError> {
        let number = json!({ "seq": letter.sequence, "no_erase": true });
        let subject = format!("STREAM.MSG.DELETE.{DEAD_LETTER_STREAM}");
        // Another request can have deleted it.
        let deleted = request_optional(&self.context, subject, &number, ErrorCode::SEQUENCE_NOT_FOUND).await;
        deleted.map(|_: Option<Value>| ()).map_err(DeadLetterError)
    }
}

impl DeadLetter {
    fn from_message(message: StreamMessage) -> Option<Self> {
        let (tenant, consumer) =
            message.subject.strip_prefix(SUBJECT_PREFIX)?.strip_prefix('.')?.split_once('.')?;
        Some(Self {
            tenant_id: tenant.parse().ok()?,
            consumer: consumer.to_owned(),
            sequence: message.sequence,
            failed_at: utc(message.time),
            payload: message.payload,
            headers: message.headers,
            is_event_stored: false,
        })
    }

    /// Returns stream and number of the event.
    fn reference(&self) -> Option<(String, NonZeroU64)> {
        let header = |name: &str| Some(self.headers.get(name)?.as_str());
        let place = (header(STREAM)?.to_owned(), header(SEQUENCE)?.parse::<NonZeroU64>().ok()?);
        self.quarantine().is_none().then_some(place)
    }

    /// Returns whether this is the event of the dead letter: it has the same tenant, source and id. The tenant of the dead letter is
    /// certain. A stream that was created again has other events at the same numbers.
    fn is_of(&self, event: &StreamMessage) -> bool {
        let is_of_tenant = event.subject.split('.').nth(3) == Some(self.tenant_id.as_str());
        is_of_tenant
            && [CE_SOURCE, CE_ID]
                .iter()
                .all(|name| event.headers.get(*name).is_some_and(|own| self.headers.get(*name) == Some(own)))
    }

    /// Takes payload and headers of the event.
    fn with(self, event: StreamMessage) -> Self {
        let mut headers = event.headers;
        for name in [REASON, ATTEMPTS] {
            if let Some(value) = self.headers.get(name) {
                headers.insert(name, value.clone());
            }
        }
        Self { headers, payload: event.payload, is_event_stored: true, ..self }
    }

    /// Source of the event, if the header is valid.
    pub fn source_id(&self) -> Option<String> {
        let encoded = self.headers.get(CE_SOURCE)?;
        Some(percent_decode_str(encoded.as_str()).decode_utf8().ok()?.into_owned())
    }

    /// Id of the event.
    pub fn event_id(&self) -> Option<&str> {
        Some(self.headers.get(CE_ID)?.as_str())
    }

    /// Type of the event.
    pub fn event_type(&self) -> Option<&str> {
        Some(self.headers.get(CE_TYPE)?.as_str())
    }

    /// Why the consumer gave up.
    pub fn reason(&self) -> Option<&str> {
        Some(self.headers.get(REASON)?.as_str())
    }

    /// Number of attempts of the consumer.
    pub fn attempts(&self) -> Option<u32> {
        self.headers.get(ATTEMPTS)?.as_str().parse().ok()
    }

    /// Returns the event for its consumer, to be stored as a new message of the tenant. Storing it again within two minutes has no
    /// effect. If the event is not stored any more, its receipt and sender are those of the dead letter.
    ///
    /// # Errors
    /// Source, type and id of the headers do not match the event, or it is not stored any more.
    pub fn replay(&self) -> Result<Message, InvalidSubject> {
        let event = udm::parse(&self.payload).map_err(|_| InvalidSubject)?;
        let event_id = self.event_id().ok_or(InvalidSubject)?;
        let matches = self.source_id().as_deref() == Some(&event.source_id)
            && self.event_type() == Some(&event.event_type)
            && event.event_id.as_deref().is_none_or(|own| own == event_id);
        if !matches {
            return Err(InvalidSubject);
        }
        let subject = EventSubject::new(&self.tenant_id, &event.event_type, &event.source_id)?;
        let message_id = format!("replay-{}", self.sequence);
        let of_event = if self.is_event_stored {
            self.headers.clone()
        } else {
            let (tenant, sender) = (self.tenant_id.clone(), format!("consumer:{}", self.consumer));
            let context = EventContext::new(tenant, self.failed_at, &message_id, &sender, None);
            Message::event(&context, &event, event_id, self.payload.clone())?.headers()
        };
        let mut headers = HeaderLines::default();
        for name in EVENT_HEADERS {
            if let Some(value) = of_event.get(name) {
                headers.push(name, value.as_str())?;
            }
        }
        headers.push(MESSAGE_ID, &message_id)?;
        headers.push(REPLAY_FOR, &self.consumer)?;
        Ok(Message::with_headers(subject.to_string(), subject.partition(), headers, self.payload.clone()))
    }
}
