//! API keys: credentials of a tenant's programs, with a lifetime, scopes and an optional list of sources.

use chrono::{DateTime, TimeDelta, Utc};
use contract::session::CreateApiKey;
use contract::{Scope, TenantStatus, names};

const MAX_NAME_CHARS: usize = 100;
/// Every introspection result of a key contains its sources, so the list must be short.
const MAX_SOURCES: usize = 100;
const DEFAULT_LIFETIME: TimeDelta = TimeDelta::days(90);
const MAX_LIFETIME: TimeDelta = TimeDelta::days(365);

/// The validated fields of a key to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewApiKey {
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    /// Empty: every source.
    pub(crate) source_ids: Vec<String>,
    pub(crate) expires_at: DateTime<Utc>,
}

/// The invalid field of a request to create a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidApiKey {
    /// Position of the field, as a JSON Pointer.
    pub(crate) pointer: &'static str,
    pub(crate) message: String,
}

impl NewApiKey {
    /// Validates a request. Duplicate scopes and sources are removed.
    pub(crate) fn validate(request: CreateApiKey, now: DateTime<Utc>) -> Result<Self, InvalidApiKey> {
        let invalid = |pointer| move |message| InvalidApiKey { pointer, message };
        let name = names::check(&request.name, MAX_NAME_CHARS).map_err(invalid("/name"))?;
        let scopes = sorted_unique(request.scopes);
        if scopes.is_empty() {
            return Err(invalid("/scopes")("must contain at least one scope".to_owned()));
        }
        let source_ids = match request.source_ids.map(sorted_unique) {
            None => Vec::new(),
            // An empty list is more likely an error of a script than a request for all sources.
            Some(ids) if !are_source_ids(&ids) => {
                let message = format!(
                    "must be absent, or contain 1 to {MAX_SOURCES} sources, each of 1 to 256 bytes, not blank, without control characters"
                );
                return Err(invalid("/source_ids")(message));
            }
            Some(ids) => ids,
        };
        // The precision of Postgres, which also has no leap seconds, so that the response equals the listed key.
        let expires_at = request.expires_at.unwrap_or(now + DEFAULT_LIFETIME).timestamp_micros();
        let expires_at = DateTime::from_timestamp_micros(expires_at)
            .filter(|expires_at| *expires_at > now && *expires_at <= now + MAX_LIFETIME)
            .ok_or_else(|| {
                format!("must be in the future, at most {} days from now", MAX_LIFETIME.num_days())
            })
            .map_err(invalid("/expires_at"))?;
        Ok(Self { name: name.to_owned(), scopes, source_ids, expires_at })
    }
}

/// Returns whether a credential can be limited to these sources.
pub(crate) fn are_source_ids(ids: &[String]) -> bool {
    (1..=MAX_SOURCES).contains(&ids.len()) && ids.iter().all(|id| udm::is_source_id(id))
}

/// The times that determine whether a key is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLifecycle {
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) revoked_at: Option<DateTime<Utc>>,
}

impl KeyLifecycle {
    /// Returns whether the key can be used at a time: it is valid, and its tenant is active. A key of a suspended tenant is active again
    /// when the tenant is resumed.
    pub(crate) fn is_active(&self, tenant: TenantStatus, now: DateTime<Utc>) -> bool {
        self.is_valid(now) && tenant == TenantStatus::Active
    }

    /// Returns whether the key is neither revoked nor expired.
    pub(crate) fn is_valid(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }
}

fn sorted_unique<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn request() -> CreateApiKey {
        CreateApiKey {
            name: "firewall".to_owned(),
            scopes: vec![Scope::EventsWrite],
            expires_at: None,
            source_ids: None,
        }
    }

    fn validate(change: impl FnOnce(&mut CreateApiKey)) -> Result<NewApiKey, InvalidApiKey> {
        let mut request = request();
        change(&mut request);
        NewApiKey::validate(request, NOW)
    }

    /// The invalid field.
    fn rejected(change: impl FnOnce(&mut CreateApiKey)) -> &'static str {
        validate(change).unwrap_err().pointer
    }

    #[test]
    fn lifetime_is_ninety_days_by_default_and_one_year_at_most() {
        assert_eq!(validate(|_| ()).unwrap().expires_at, NOW + TimeDelta::days(90));
        let until = |at| validate(|request| request.expires_at = Some(at));
        assert_eq!(until(NOW + TimeDelta::days(365)).unwrap().expires_at, NOW + TimeDelta::days(365));
        for at in [NOW, NOW - TimeDelta::days(1), NOW + TimeDelta::days(365) + TimeDelta::microseconds(1)] {
            assert_eq!(until(at).unwrap_err().pointer, "/expires_at", "{at}");
        }
    }

    #[test]
    fn a_leap_second_is_the_next_second_as_in_the_database() {
        let leap = "2016-12-31T23:59:60.0000015Z".parse::<DateTime<Utc>>().unwrap();
        let request = CreateApiKey {
            name: "a".to_owned(),
            scopes: vec![Scope::EventsWrite],
            source_ids: None,
            expires_at: Some(leap),
        };
        let key = NewApiKey::validate(request, leap - TimeDelta::days(1)).unwrap();
        assert_eq!(key.expires_at.to_rfc3339(), "2017-01-01T00:00:00.000001+00:00");
    }

    #[test]
    fn the_number_of_sources_is_limited() {
        let with = |count: usize| {
            let ids = (0..count).map(|number| format!("fw-{number}")).collect();
            validate(|request| request.source_ids = Some(ids))
        };
        assert_eq!(with(MAX_SOURCES).unwrap().source_ids.len(), MAX_SOURCES);
        assert_eq!(with(MAX_SOURCES + 1).unwrap_err().pointer, "/source_ids");
    }

    #[test]
    fn name_is_trimmed_and_limited() {
        assert_eq!(validate(|request| request.name = " ü ".to_owned()).unwrap().name, "ü");
        let longest = "ü".repeat(MAX_NAME_CHARS);
        assert_eq!(validate(|request| request.name = longest.clone()).unwrap().name, longest);
        for name in ["", "  ", "a\nb", "a\u{202e}b", "https://evil.example", &"x".repeat(101)] {
            assert_eq!(rejected(|request| request.name = name.to_owned()), "/name", "{name}");
        }
    }

    #[test]
    fn duplicates_are_removed_and_empty_scopes_rejected() {
        let key = validate(|request| {
            request.scopes = vec![Scope::UsersRead, Scope::EventsWrite, Scope::UsersRead];
            request.source_ids = Some(vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]);
        });
        let key = key.unwrap();
        assert_eq!(key.scopes, [Scope::EventsWrite, Scope::UsersRead]);
        assert_eq!(key.source_ids, ["a", "b"]);
        assert_eq!(rejected(|request| request.scopes = Vec::new()), "/scopes");
    }

    #[test]
    fn rejects_source_ids_that_no_event_can_have() {
        let many = (0..=MAX_SOURCES).map(|n| n.to_string()).collect();
        for bad in [vec![" ".to_owned()], vec!["a\u{7}".to_owned()], vec!["x".repeat(257)], many] {
            assert_eq!(rejected(|request| request.source_ids = Some(bad)), "/source_ids");
        }
    }

    proptest! {
        #[test]
        fn key_is_active_until_it_expires_or_is_revoked(
            now in 0_i64..10, expires in 0_i64..10, revoked in prop::option::of(0_i64..10), suspended: bool,
        ) {
            let at = |seconds| NOW + TimeDelta::seconds(seconds);
            let tenant_status = if suspended { TenantStatus::Suspended } else { TenantStatus::Active };
            let key = KeyLifecycle { expires_at: at(expires), revoked_at: revoked.map(at) };
            prop_assert_eq!(key.is_active(tenant_status, at(now)), now < expires && revoked.is_none() && !suspended);
        }
    }
}
