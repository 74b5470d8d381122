//! `svc auth password`: change one's own password, or choose a new one when it is forgotten.

mod change;
mod confirm_reset;
mod reset;

use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::group;
use crate::output::{Report, Table};

group!(
    /// Change your password, or reset a forgotten one.
    Password {
        Change(change::Change),
        Reset(reset::Reset),
        ConfirmReset(confirm_reset::ConfirmResetCommand),
    }
);

/// A password that was changed.
#[derive(Serialize, JsonSchema)]
struct Changed {
    /// Always true.
    changed: bool,
    /// Whether the session that acted lives on; all others of the user have ended.
    session_kept: bool,
}

impl Report for Changed {
    fn table(&self) -> Table {
        Table::of_text(if self.session_kept {
            "The password is changed. Your other sessions are ended."
        } else {
            "The password is changed. All sessions of the account are ended."
        })
    }
}
