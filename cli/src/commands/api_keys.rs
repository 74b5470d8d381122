//! `svc api-keys`: credentials of a tenant's own programs.

mod create;
mod list;
mod revoke;

use contract::api_key::ApiKey;

use super::group;
use crate::output::{Report, Row, Table, minute, time};

group!(
    /// Look after the keys that programs send events with.
    ApiKeys {
        Create(create::Create),
        List(list::List),
        Revoke(revoke::Revoke),
    }
);

/// The words of a list in a cell.
fn words<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The sources that a key may send for.
fn sources(key: &ApiKey) -> String {
    if key.source_ids.is_empty() { "all".to_owned() } else { words(&key.source_ids) }
}

impl Report for ApiKey {
    fn table(&self) -> Table {
        Table::of_fields([
            ("id", Some(self.id.to_string())),
            ("name", Some(self.name.clone())),
            ("scopes", Some(words(&self.scopes))),
            ("sources", Some(sources(self))),
            ("expires", Some(time(&self.expires_at))),
            ("key", self.key.as_ref().map(|key| key.expose().to_owned())),
        ])
    }
}

impl Row for ApiKey {
    const HEADING: &'static [&'static str] = &["ID", "NAME", "SCOPES", "SOURCES", "EXPIRES", "LAST USED"];
    const NONE: &'static str = "No API key.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            words(&self.scopes),
            sources(self),
            minute(&self.expires_at),
            self.last_used_at.as_ref().map(minute).unwrap_or_default(),
        ]
    }
}
