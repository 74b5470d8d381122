//! Reads the stored events of one tenant in the order of the streams, from now on or from a position.
//!
//! Each read has a separate consumer in each stream. The consumers are deleted with the read, or by the server after a time
//! without requests. A read holds a bounded amount of memory: it requests the next events only when the last ones are taken.
//! It fails as soon as an event could be missing, for example when the connection breaks. Another read after its position
//! continues without lost or repeated events.

mod cursor;
mod filter;
mod position;
mod state;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use service::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connect::Connection;
use crate::stored::Place;
use crate::streams::EventStreams;

use cursor::Cursor;
use state::{CursorStart, StreamState};

pub use filter::{EventFilter, StoredEvent};
pub use position::Position;

/// Memory that one read can hold: the reply to one request, and the event that is being sent.
pub const READ_BYTES: usize = 640 * 1024;
/// Minimum interval of new connections while a stream does not answer.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(5);

/// Reads events over one connection to the broker. Clones share it.
#[derive(Clone)]
pub struct EventReader {
    connection: Connection,
    reconnected_at: Arc<Mutex<Instant>>,
    streams: EventStreams,
    idle_interval: Duration,
    tasks: Tasks,
}

/// The first event of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Events that are stored from now on.
    New,
    /// Events after this position.
    After(Position),
    /// Events that were stored at this time or later.
    Since(DateTime<Utc>),
}

/// An item of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadItem {
    /// An event.
    Event(StoredEvent),
    /// There was no event for the idle interval, the read just started, or it skipped events. The position can have changed.
    Idle,
    /// Events before the following ones are not stored any more.
    Gap,
}

/// The broker is not available, or an event could be missing. Start another read after the position of this one.
#[derive(Debug, thiserror::Error)]
#[error("failed to read events: {cause}")]
pub struct ReadError {
    cause: String,
    /// The server did not respond or cannot reach the leader of a stream. Another server may.
    is_from_server: bool,
}

impl ReadError {
    pub(crate) fn because(cause: impl std::fmt::Display) -> Self {
        Self { cause: cause.to_string(), is_from_server: false }
    }

    fn from_server(cause: impl std::fmt::Display) -> Self {
        Self { is_from_server: true, ..Self::because(cause) }
    }
}

type CursorItem = Result<(usize, Place, Option<ReadItem>), ReadError>;

/// A running read.
pub struct EventRead {
    position: Position,
    /// The item before those of the cursors.
    first: Option<ReadItem>,
    /// The index of the stream, the position in it, and the item. None at the end of a stream.
    cursors: SelectAll<BoxStream<'static, CursorItem>>,
    disconnects: watch::Receiver<()>,
}

impl EventReader {
    /// Uses the connection, and makes the client connect to another server if a stream does not answer. A read without events returns
    /// [`ReadItem::Idle`] after each interval.
    pub fn new(
        connection: Connection,
        streams: EventStreams,
        idle_interval: Duration,
        tasks: &Tasks,
    ) -> Self {
        let reconnected_at = Arc::new(Mutex::new(Instant::now()));
        Self { connection, reconnected_at, streams, idle_interval, tasks: tasks.clone() }
    }

    /// Starts a read. Its first item is [`ReadItem::Gap`] if events after the start are not stored any more. Without `follow`,
    /// it ends after the events that are stored now.
    pub async fn read(
        &self,
        filter: &EventFilter,
        start: Start,
        follow: bool,
    ) -> Result<EventRead, ReadError> {
        let opened = self.open(filter, start, follow).await;
        if opened.as_ref().is_err_and(|error| error.is_from_server) {
            self.try_another_server().await;
        }
        opened
    }

    async fn open(&self, filter: &EventFilter, start: Start, follow: bool) -> Result<EventRead, ReadError> {
        let context = self.connection.jetstream().map_err(ReadError::because)?;
        let disconnects = self.connection.later_disconnects();
        let streams: Vec<_> = self.streams.with_ranges().collect();
        let mut states = Vec::new();
        for (stream, _) in &streams {
            states.push(StreamState::query(&context, stream).await?);
        }
        let tag = state::tag(streams.iter().map(|(stream, _)| stream.as_str()).zip(&states));
        let (mut places, mut cursors, mut has_gap) = (Vec::new(), SelectAll::new(), false);
        for (index, ((stream, partitions), state)) in streams.iter().zip(&states).enumerate() {
            let (mut start, mut is_lost) = CursorStart::new(&start, tag, index, state);
            if let CursorStart::After(place) = start
                && place.is_replaced(&context, stream).await.map_err(ReadError::from_server)?
            {
                (start, is_lost) = (CursorStart::All, true);
            }
            has_gap |= is_lost;
            let subjects = filter.subjects(partitions.clone());
            if subjects.is_empty() {
                places.push(start.place_of_unread(state));
                continue;
            }
            let until = (!follow).then_some(state.last);
            let cursor = Cursor::open(self, stream, subjects, filter, &start, until).await?;
            places.push(cursor.position());
            let items = cursor.into_items().map_ok(move |(place, item)| (index, place, item));
            cursors.push(items.boxed());
        }
        let first = Some(if has_gap { ReadItem::Gap } else { ReadItem::Idle });
        Ok(EventRead { position: Position { tag, places }, first, cursors, disconnects })
    }

    /// Connects again, because the server can be cut off from the leaders of the streams, and another one not. This ends all reads.
    async fn try_another_server(&self) {
        {
            let mut reconnected_at = self.reconnected_at.lock();
            if reconnected_at.elapsed() < RECONNECT_INTERVAL {
                return;
            }
            *reconnected_at = Instant::now();
        }
        // Fails only if the client has stopped.
        let _ = self.connection.client.force_reconnect().await;
    }
}

impl EventRead {
    /// The position after the last item.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Waits for the next item. Returns `None` after the last one of a read without `follow`. Do not call it again after an
    /// error. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<ReadItem, ReadError>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        loop {
            let item = tokio::select! {
                biased;
                _ = self.disconnects.changed() => {
                    return Some(Err(ReadError::because("the connection to the broker broke")));
                }
                item = self.cursors.next() => item?,
            };
            let (index, place, item) = match item {
                Ok(item) => item,
                Err(error) => return Some(Err(error)),
            };
            if let Some(last) = self.position.places.get_mut(index) {
                *last = place;
            }
            if let Some(item) = item {
                return Some(Ok(item));
            }
        }
    }
}
