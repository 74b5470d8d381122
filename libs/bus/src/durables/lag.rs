//! How far durables are behind.

use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;

use super::{DEFINITION, DurableError, Durables, Info, failed};
use crate::stored::{ReadFrom, first_message};

/// A durable and how far it is behind: sums and maximums over its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableLag {
    /// Name.
    pub name: String,
    /// Events that were not delivered yet.
    pub pending: u64,
    /// Delivered events without an acknowledgement.
    pub ack_pending: u64,
    /// Unacknowledged events that were delivered more than once.
    pub redelivered: u64,
    /// Time at which the oldest event was stored that is not acknowledged. `None` without such an event.
    pub oldest_unread_at: Option<DateTime<Utc>>,
}

impl Durables {
    /// Returns the first `limit` durables by name, and the number of all.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn lags(&self, limit: usize) -> Result<(Vec<DurableLag>, usize), DurableError> {
        let mut lags: Vec<DurableLag> = Vec::new();
        let mut names: Vec<String> = self.list().await?.into_iter().map(|durable| durable.name).collect();
        let count = names.len();
        names.truncate(limit);
        for (stream, _) in &self.streams {
            let handle = self.context.get_stream_no_info(stream).await.map_err(failed(stream))?;
            let mut infos = handle.consumers();
            while let Some(info) = infos.try_next().await.map_err(failed(stream))? {
                if info.config.metadata.contains_key(DEFINITION) && names.binary_search(&info.name).is_ok() {
                    let lag = self.lag(info).await?;
                    match lags.iter_mut().find(|found| found.name == lag.name) {
                        Some(found) => found.add(&lag),
                        None => lags.push(lag),
                    }
                }
            }
        }
        Ok((lags, count))
    }

    async fn lag(&self, info: Info) -> Result<DurableLag, DurableError> {
        let mut oldest_unread_at = None;
        if info.num_pending > 0 || info.num_ack_pending > 0 {
            let (stream, first) = (&info.stream_name, info.ack_floor.stream_sequence + 1);
            for filter in filters(&info) {
                let found = first_message(&self.context, stream, filter, ReadFrom::Sequence(first)).await;
                let time = found.map_err(failed(stream))?.map(|message| super::time(message.time));
                oldest_unread_at = earlier(oldest_unread_at, time);
            }
        }
        Ok(DurableLag {
            name: info.name,
            pending: info.num_pending,
            ack_pending: info.num_ack_pending as u64,
            redelivered: info.num_redelivered as u64,
            oldest_unread_at,
        })
    }
}

fn filters(info: &Info) -> Vec<&str> {
    if info.config.filter_subjects.is_empty() {
        let one = info.config.filter_subject.as_str();
        return vec![if one.is_empty() { ">" } else { one }];
    }
    info.config.filter_subjects.iter().map(String::as_str).collect()
}

fn earlier(one: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    one.into_iter().chain(other).min()
}

impl DurableLag {
    fn add(&mut self, other: &Self) {
        self.pending += other.pending;
        self.ack_pending += other.ack_pending;
        self.redelivered += other.redelivered;
        self.oldest_unread_at = earlier(self.oldest_unread_at, other.oldest_unread_at);
    }
}
