//! What an input contains in addition to its events.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::framework::output::Output;

/// Maximum number of names in a warning.
const MAX_NAMES: usize = 10;
/// Maximum number of characters of a name in a warning.
const MAX_NAME_CHARS: usize = 64;

/// What an input contains in addition to its events.
#[derive(Default)]
pub(super) struct Remarks {
    /// Names of members next to wrapped events.
    ignored: BTreeSet<String>,
    /// Number of objects without a known field.
    unknown: u64,
}

impl Remarks {
    /// Adds the names of members that are not sent. A name is cut, because it can have any length.
    pub(super) fn add_ignored<'a>(&mut self, names: impl IntoIterator<Item = Cow<'a, str>>) {
        if self.ignored.len() <= MAX_NAMES {
            let cut = |name: Cow<'_, str>| name.chars().take(MAX_NAME_CHARS).collect::<String>();
            self.ignored.extend(names.into_iter().map(cut));
        }
    }

    pub(super) fn add_unknown(&mut self) {
        self.unknown += 1;
    }

    /// Prints warnings. `source_id` is the source of events that have none.
    pub(super) fn print(&self, out: &Output, source_id: Option<&str>) {
        if !self.ignored.is_empty() {
            let names: Vec<_> = self.ignored.iter().take(MAX_NAMES).map(String::as_str).collect();
            let names = names.join(", ");
            let more = if self.ignored.len() > MAX_NAMES { ", …" } else { "" };
            out.warn(&format!("members next to wrapped events are not sent with them: {names}{more}"));
        }
        if let Some(source_id) = source_id.filter(|_| self.unknown > 0) {
            out.warn(&format!(
                "objects without a known field of an event: {}; each is one GENERIC_EVENT of the source {source_id}. Convert other \
                formats to UDM first (svc events schema)",
                self.unknown
            ));
        }
    }
}
