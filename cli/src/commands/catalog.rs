//! `svc catalog`: the commands as data.

mod show;
mod validate;

use super::group;

group!(
    /// What every command takes, prints and fails with, as data.
    Catalog {
        Show(show::Show),
        Validate(validate::Validate),
    }
);
