//! `svc auth sessions`: the sessions of a user.

mod list;
mod revoke;

use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::group;
use crate::output::{Report, Table};

group!(
    /// See and end sessions.
    Sessions {
        List(list::List),
        Revoke(revoke::Revoke),
    }
);

/// A session that was ended.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ended {
    /// Always true: the session is dead, now or before.
    pub(super) revoked: bool,
    /// Whether it was stored here, and is no longer.
    pub(super) forgotten: bool,
}

impl Report for Ended {
    fn table(&self) -> Table {
        let stored = if self.forgotten {
            "The session is ended, and forgotten here."
        } else {
            "The session is ended."
        };
        Table::of_text(stored)
    }
}
