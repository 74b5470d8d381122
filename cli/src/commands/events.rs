//! `svc events`: check events, and send them.

mod delivery;
mod ids;
mod input;
mod progress;
mod rejects;
mod send;
mod validate;

use super::group;

group!(
    /// Check and send events.
    Events {
        Send(send::Send),
        Validate(validate::Validate),
    }
);
