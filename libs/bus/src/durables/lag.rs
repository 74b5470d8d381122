//! How old the oldest event is that a durable has not acknowledged.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Durable, DurableError, Durables, failed};
use crate::stored::{ReadFrom, first_message, utc};

impl Durables {
    /// Returns the time since the oldest event was stored that the durable has not acknowledged; zero without such an event.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn oldest_unread_age(
        &self,
        durable: &Durable,
        now: DateTime<Utc>,
    ) -> Result<Duration, DurableError> {
        let mut oldest = now;
        if durable.pending == 0 && durable.ack_pending == 0 {
            return Ok(Duration::ZERO);
        }
        for (stream, floor) in durable.streams.iter().zip(&durable.ack_floors) {
            let range = self.streams.iter().find(|(name, _)| name == stream);
            for filter in
                range.map(|(_, range)| durable.definition.filter.subjects(range)).unwrap_or_default()
            {
                let from = ReadFrom::Sequence(floor + 1);
                let found =
                    first_message(&self.context, stream, &filter, from).await.map_err(failed(stream))?;
                oldest = found.map_or(oldest, |message| oldest.min(utc(message.time)));
            }
        }
        Ok((now - oldest).to_std().unwrap_or_default())
    }
}
