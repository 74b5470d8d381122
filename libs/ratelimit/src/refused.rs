//! Who is known to be refused, and until when: they need no statement before that.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};

/// Strangers decide how many there are, so there are only so many; the others are counted in the database, as the first time.
const CAPACITY: usize = 16_384;

type Counted = (&'static str, String);

#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<Counted, DateTime<Utc>>>);

impl Refused {
    /// Until when this one is refused, if it is.
    pub(crate) fn until(
        &self,
        limit: &'static str,
        subject: &str,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let mut known = self.lock();
        let counted = (limit, subject.to_owned());
        let until = known.get(&counted).copied()?;
        if until > now {
            return Some(until);
        }
        known.remove(&counted);
        None
    }

    pub(crate) fn remember(
        &self,
        limit: &'static str,
        subject: &str,
        until: DateTime<Utc>,
        now: DateTime<Utc>,
    ) {
        let mut known = self.lock();
        if known.len() >= CAPACITY {
            known.retain(|_, until| *until > now);
        }
        if known.len() < CAPACITY {
            known.insert((limit, subject.to_owned()), until);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Counted, DateTime<Utc>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_refusal_holds_until_its_time_comes() {
        let (refused, now) = (Refused::default(), DateTime::UNIX_EPOCH);
        let until = now + TimeDelta::seconds(1);
        refused.remember("login", "192.0.2.1", until, now);
        assert_eq!(refused.until("login", "192.0.2.1", now), Some(until));
        assert_eq!(refused.until("login", "192.0.2.2", now), None);
        assert_eq!(refused.until("reset", "192.0.2.1", now), None);
        assert_eq!(refused.until("login", "192.0.2.1", until), None);
        assert_eq!(refused.lock().len(), 0);
    }

    #[test]
    fn no_number_of_strangers_takes_more_than_its_room() {
        let (refused, now) = (Refused::default(), DateTime::UNIX_EPOCH);
        for n in 0..2 * CAPACITY {
            refused.remember("login", &n.to_string(), now + TimeDelta::seconds(1), now);
        }
        assert_eq!(refused.lock().len(), CAPACITY);
        // Those whose time has come make room.
        let later = now + TimeDelta::seconds(1);
        refused.remember("login", "another", later + TimeDelta::seconds(1), later);
        assert!(refused.until("login", "another", later).is_some());
        assert_eq!(refused.lock().len(), 1);
    }
}
