//! Subjects that exceed a limit, with the end of their rejection. Their requests need no statement until then.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};

/// Clients decide how many subjects there are, so the map is bounded. Other subjects are counted in the database.
const CAPACITY: usize = 16_384;

/// Name of a limit and a subject.
type Key = (&'static str, String);

#[derive(Debug, Default)]
pub(crate) struct Rejections(Mutex<HashMap<Key, DateTime<Utc>>>);

impl Rejections {
    /// Returns the end of a rejection that has not expired.
    pub(crate) fn find(
        &self,
        limit: &'static str,
        subject: &str,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let mut rejections = self.lock();
        let key = (limit, subject.to_owned());
        let until = rejections.get(&key).copied()?;
        if until > now {
            return Some(until);
        }
        rejections.remove(&key);
        None
    }

    pub(crate) fn insert(
        &self,
        limit: &'static str,
        subject: &str,
        until: DateTime<Utc>,
        now: DateTime<Utc>,
    ) {
        let mut rejections = self.lock();
        if rejections.len() >= CAPACITY {
            rejections.retain(|_, until| *until > now);
        }
        if rejections.len() < CAPACITY {
            rejections.insert((limit, subject.to_owned()), until);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, DateTime<Utc>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_rejection_lasts_until_it_expires() {
        let (rejections, now) = (Rejections::default(), DateTime::UNIX_EPOCH);
        let until = now + TimeDelta::seconds(1);
        rejections.insert("login", "192.0.2.1", until, now);
        assert_eq!(rejections.find("login", "192.0.2.1", now), Some(until));
        assert_eq!(rejections.find("login", "192.0.2.2", now), None);
        assert_eq!(rejections.find("reset", "192.0.2.1", now), None);
        assert_eq!(rejections.find("login", "192.0.2.1", until), None);
        assert_eq!(rejections.lock().len(), 0);
    }

    #[test]
    fn the_number_of_rejections_is_bounded() {
        let (rejections, now) = (Rejections::default(), DateTime::UNIX_EPOCH);
        for n in 0..2 * CAPACITY {
            rejections.insert("login", &n.to_string(), now + TimeDelta::seconds(1), now);
        }
        assert_eq!(rejections.lock().len(), CAPACITY);
        // Expired rejections are removed.
        let later = now + TimeDelta::seconds(1);
        rejections.insert("login", "another", later + TimeDelta::seconds(1), later);
        assert!(rejections.find("login", "another", later).is_some());
        assert_eq!(rejections.lock().len(), 1);
    }
}
