//! An API key: a credential of a tenant's own program, with a life, scopes and, where wanted, a list of sources.

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use contract::Scope;
use contract::api_key::CreateApiKey;

const MAX_NAME: usize = 100;
/// Each look-up of the key carries them.
const MAX_SOURCES: usize = 100;
const DEFAULT_LIFE: TimeDelta = TimeDelta::days(90);
const MAX_LIFE: TimeDelta = TimeDelta::days(365);

/// A key that is to be made. Its fields are what was asked for, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewApiKey {
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) source_ids: Vec<String>,
    pub(crate) expires_at: DateTime<Utc>,
}

/// What is wrong with a key that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidApiKey {
    #[error("a name has 1 to {MAX_NAME} characters, none of them a control character")]
    Name,
    #[error("a key has a scope at least")]
    Scopes,
    #[error(
        "a key has at most {MAX_SOURCES} sources, each of 1 to 256 bytes, not blank, no control characters"
    )]
    SourceIds,
    #[error("a key ends in the future, at most {} days from now", MAX_LIFE.num_days())]
    ExpiresAt,
}

impl NewApiKey {
    /// Checks what was asked for. What is named twice counts once.
    pub(crate) fn check(request: CreateApiKey, now: DateTime<Utc>) -> Result<Self, InvalidApiKey> {
        let name = request.name.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(InvalidApiKey::Name);
        }
        let scopes = each_once(request.scopes);
        if scopes.is_empty() {
            return Err(InvalidApiKey::Scopes);
        }
        let source_ids = each_once(request.source_ids);
        if source_ids.len() > MAX_SOURCES || !source_ids.iter().all(|id| udm::is_source_id(id)) {
            return Err(InvalidApiKey::SourceIds);
        }
        // As precise as Postgres keeps it, so that what is answered is what is listed.
        let expires_at = request.expires_at.unwrap_or(now + DEFAULT_LIFE).trunc_subsecs(6);
        if expires_at <= now || expires_at > now + MAX_LIFE {
            return Err(InvalidApiKey::ExpiresAt);
        }
        Ok(Self { name: name.to_owned(), scopes, source_ids, expires_at })
    }
}

fn each_once<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn request() -> CreateApiKey {
        CreateApiKey {
            name: "firewall".to_owned(),
            scopes: vec![Scope::EventsWrite],
            expires_at: None,
            source_ids: Vec::new(),
        }
    }

    fn check(change: impl FnOnce(&mut CreateApiKey)) -> Result<NewApiKey, InvalidApiKey> {
        let mut request = request();
        change(&mut request);
        NewApiKey::check(request, NOW)
    }

    #[test]
    fn a_key_lives_ninety_days_unless_told_and_a_year_at_most() {
        assert_eq!(check(|_| ()).unwrap().expires_at, NOW + TimeDelta::days(90));
        let until = |at| check(|request| request.expires_at = Some(at));
        assert_eq!(until(NOW + TimeDelta::days(365)).unwrap().expires_at, NOW + TimeDelta::days(365));
        for at in [NOW, NOW - TimeDelta::days(1), NOW + TimeDelta::days(365) + TimeDelta::microseconds(1)] {
            assert_eq!(until(at), Err(InvalidApiKey::ExpiresAt), "{at}");
        }
    }

    #[test]
    fn a_name_is_trimmed_and_bounded() {
        assert_eq!(check(|request| request.name = " ü ".to_owned()).unwrap().name, "ü");
        for name in ["", "  ", "a\nb", &"x".repeat(101)] {
            assert_eq!(check(|request| request.name = name.to_owned()), Err(InvalidApiKey::Name), "{name}");
        }
    }

    #[test]
    fn what_is_named_twice_counts_once_and_nothing_is_no_scope() {
        let twice = check(|request| {
            request.scopes = vec![Scope::UsersRead, Scope::EventsWrite, Scope::UsersRead];
            request.source_ids = vec!["b".to_owned(), "a".to_owned(), "b".to_owned()];
        });
        let twice = twice.unwrap();
        assert_eq!(twice.scopes, [Scope::EventsWrite, Scope::UsersRead]);
        assert_eq!(twice.source_ids, ["a", "b"]);
        assert_eq!(check(|request| request.scopes = Vec::new()), Err(InvalidApiKey::Scopes));
    }

    #[test]
    fn sources_are_ones_that_an_event_can_name() {
        let many = (0..=MAX_SOURCES).map(|n| n.to_string()).collect();
        for bad in [vec![" ".to_owned()], vec!["a\u{7}".to_owned()], vec!["x".repeat(257)], many] {
            assert_eq!(check(|request| request.source_ids = bad), Err(InvalidApiKey::SourceIds));
        }
    }
}
