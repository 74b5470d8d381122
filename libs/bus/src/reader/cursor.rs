//! The consumer of a read in one stream.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::{self, BatchConfig};
use async_nats::jetstream::consumer::{AckPolicy, Consumer};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, Context};
use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures::{Stream, StreamExt as _};
use service::Tasks;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::stored::Place;

use super::state::{CursorStart, StreamState};
use super::{EventFilter, EventReader, ReadError, ReadItem};

/// Events and bytes of one request. A request for fewer bytes than the largest message could never be fulfilled.
const MAX_REQUEST_EVENTS: usize = 256;
const MAX_REQUEST_BYTES: usize = 288 * 1024;
/// The server deletes a consumer after this time without requests, for example of a process that was killed.
const INACTIVE_THRESHOLD: Duration = Duration::from_mins(2);
/// Time for the reply after a request has expired.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A consumer without acknowledgements. It is deleted on drop.
pub(super) struct Cursor {
    consumer: Consumer<pull::Config>,
    context: Context,
    stream: String,
    filter: EventFilter,
    inbox: String,
    /// Reply subject of the last request. The server sends the status of a request to its reply subject.
    reply_subject: Subject,
    /// Number of requests that were sent.
    requests: u64,
    replies: Subscriber,
    /// The last message that was delivered or skipped.
    position: Place,
    /// Number of messages that were delivered.
    delivered: u64,
    /// Messages that can still arrive for the last request.
    requested: usize,
    /// Whether the server had more messages after the last one.
    has_backlog: bool,
    /// The last message in the stream when the last request was sent.
    last_at_request: Place,
    /// The last message of a read that ends.
    until: Option<Place>,
    last_item_at: Instant,
    idle_interval: Duration,
    tasks: Tasks,
}

impl Cursor {
    pub(super) async fn open(
        reader: &EventReader,
        stream: &str,
        subjects: Vec<String>,
        filter: &EventFilter,
        start: &CursorStart,
        until: Option<Place>,
    ) -> Result<Self, ReadError> {
        let client = reader.connection.connected().map_err(ReadError::because)?;
        let context = jetstream::new(client.clone());
        let config = pull::Config {
            name: Some(format!("read-{}", Uuid::now_v7().simple())),
            deliver_policy: start.policy(&context, stream).await?,
            ack_policy: AckPolicy::None,
            filter_subjects: subjects,
            inactive_threshold: INACTIVE_THRESHOLD,
            num_replicas: 1,
            memory_storage: true,
            ..pull::Config::default()
        };
        let inbox = client.new_inbox();
        let replies = client.subscribe(format!("{inbox}.*")).await.map_err(ReadError::because)?;
        // A former leader that is cut off returns the state of its stream, but cannot create a consumer.
        let consumer =
            context.create_consumer_on_stream(config, stream).await.map_err(|error| match error.kind() {
                ConsumerErrorKind::JetStream(cause) if cause.code() < 500 => ReadError::because(error),
                _ => ReadError::from_server(error),
            })?;
        let before_first = Place::without_time(consumer.cached_info().delivered.stream_sequence);
        let position = match start {
            // A replica that lags behind would deliver earlier messages again.
            CursorStart::After(place) => place.max(before_first),
            _ => before_first,
        };
        Ok(Self {
            consumer,
            context,
            stream: stream.to_owned(),
            filter: filter.clone(),
            reply_subject: Subject::from(inbox.as_str()),
            inbox,
            requests: 0,
            replies,
            position,
            delivered: 0,
            requested: 0,
            has_backlog: false,
            last_at_request: position,
            until,
            last_item_at: Instant::now(),
            idle_interval: reader.idle_interval,
            tasks: reader.tasks.clone(),
        })
    }

    pub(super) fn position(&self) -> Place {
        self.position
    }

    /// Returns the items, each with the position after it. A read that ends returns its last position without an item.
    pub(super) fn into_items(self) -> impl Stream<Item = Result<(Place, Option<ReadItem>), ReadError>> {
        futures::stream::try_unfold(Some(self), async |cursor| {
            let Some(mut cursor) = cursor else { return Ok(None) };
            let item = cursor.next().await?;
            cursor.last_item_at = Instant::now();
            let position = cursor.position;
            Ok(Some(if item.is_some() { ((position, item), Some(cursor)) } else { ((position, None), None) }))
        })
    }

    /// Ends a read behind the messages that were stored at its start, also behind those that do not match.
    fn end(&mut self, until: Place) -> Option<ReadItem> {
        self.position = self.position.max(until);
        None
    }

    async fn next(&mut self) -> Result<Option<ReadItem>, ReadError> {
        loop {
            if self.requested == 0 {
                if self.has_backlog && self.skip_removed().await? {
                    return Ok(Some(ReadItem::Gap));
                }
                self.request().await?;
            }
            let reply = timeout(self.idle_interval + REPLY_TIMEOUT, self.replies.next()).await;
            let Ok(Some(reply)) = reply else { return Err(ReadError::because("no reply from the broker")) };
            // The server also sends a status after the last message of a request. It can arrive after the next request was sent.
            let status = reply.status.unwrap_or(StatusCode::OK);
            if status != StatusCode::OK && reply.subject != self.reply_subject {
                continue;
            }
            match (status, reply.description.as_deref()) {
                (StatusCode::OK, _) => {
                    let position = self.record(reply.clone())?;
                    if let Some(until) = self.until
                        && position.sequence > until.sequence
                    {
                        return Ok(self.end(until));
                    }
                    if position.sequence <= self.position.sequence {
                        continue;
                    }
                    self.position = position;
                    if let Some(event) = self.filter.select(&reply) {
                        return Ok(Some(ReadItem::Event(event)));
                    }
                    // A client that continues after an incomplete read has a position behind events that do not match.
                    if self.requested == 0 || self.last_item_at.elapsed() >= self.idle_interval {
                        return Ok(Some(ReadItem::Idle));
                    }
                }
                (StatusCode::TIMEOUT | StatusCode::NOT_FOUND, _) => {
                    self.requested = 0;
                    let is_complete = self.skip_unmatched().await?;
                    if let Some(until) = self.until {
                        if is_complete {
                            return Ok(self.end(until));
                        }
                        continue;
                    }
                    return Ok(Some(ReadItem::Idle));
                }
                // The next message does not fit into the rest of the request.
                (_, Some("Message Size Exceeds MaxBytes" | "Batch Completed")) => self.requested = 0,
                (status, description) => {
                    return Err(ReadError::because(format!("{status} {}", description.unwrap_or_default())));
                }
            }
        }
    }

    async fn request(&mut self) -> Result<(), ReadError> {
        let follows = self.until.is_none();
        if follows && !self.has_backlog {
            self.last_at_request = StreamState::query(&self.context, &self.stream).await?.last;
        }
        let request = BatchConfig {
            batch: MAX_REQUEST_EVENTS,
            max_bytes: MAX_REQUEST_BYTES,
            expires: follows.then_some(self.idle_interval),
            no_wait: !follows,
            ..BatchConfig::default()
        };
        self.requests += 1;
        self.reply_subject = format!("{}.{}", self.inbox, self.requests).into();
        self.consumer.request_batch(request, self.reply_subject.clone()).await.map_err(ReadError::because)?;
        self.requested = MAX_REQUEST_EVENTS;
        Ok(())
    }

    /// Counts a delivered message. Returns its place in the stream.
    ///
    /// # Errors
    /// A message before it is missing.
    fn record(&mut self, message: Message) -> Result<Place, ReadError> {
        let message = jetstream::Message { context: self.context.clone(), message };
        let info = message.info().map_err(ReadError::because)?;
        self.requested = self.requested.saturating_sub(1);
        self.delivered += 1;
        self.has_backlog = info.pending > 0;
        if info.consumer_sequence == self.delivered {
            Ok(Place::new(info.stream_sequence, info.published))
        } else {
            Err(ReadError::because("a message is missing"))
        }
    }

    /// Moves the position behind messages that do not match. Returns whether no matching message is left.
    ///
    /// The server moves the position of a consumer only to messages that match. It counts new messages shortly after it stores
    /// them, so only messages from before the request, which has expired, are skipped.
    async fn skip_unmatched(&mut self) -> Result<bool, ReadError> {
        let info = self.consumer.get_info().await.map_err(ReadError::because)?;
        if info.delivered.consumer_sequence != self.delivered {
            return Err(ReadError::because("a message is missing"));
        }
        let is_complete = info.num_pending == 0;
        self.position = self.position.max(Place::without_time(info.delivered.stream_sequence));
        if is_complete {
            self.position = self.position.max(self.last_at_request);
        }
        Ok(is_complete)
    }

    /// Moves the position behind messages that were removed before they were delivered. Returns whether there are any.
    async fn skip_removed(&mut self) -> Result<bool, ReadError> {
        let state = StreamState::query(&self.context, &self.stream).await?;
        let is_removed = !state.contains_all_after(self.position.sequence);
        if is_removed {
            self.position = state.last_removed();
        }
        Ok(is_removed)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let (context, stream) = (self.context.clone(), std::mem::take(&mut self.stream));
        let consumer = self.consumer.cached_info().name.clone();
        self.tasks.spawn_short(async move {
            // The server deletes the consumer later if this fails.
            let deleted = context.delete_consumer_from_stream(&consumer, &stream).await;
            if let Err(error) = deleted {
                tracing::debug!(%error, consumer, "failed to delete consumer");
            }
        });
    }
}
