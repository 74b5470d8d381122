//! The binary as its users meet it: without a service, and with one that answers as it is told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

#[path = "binary/api_keys.rs"]
mod api_keys;
#[path = "binary/certificates.rs"]
mod certificates;
#[path = "binary/client.rs"]
mod client;
#[path = "binary/confirmation.rs"]
mod confirmation;
#[path = "binary/device.rs"]
mod device;
#[path = "binary/events.rs"]
mod events;
#[path = "binary/invites.rs"]
mod invites;
#[path = "binary/offline.rs"]
mod offline;
#[path = "binary/passwords.rs"]
mod passwords;
#[path = "binary/people.rs"]
mod people;
#[path = "binary/sessions.rs"]
mod sessions;
#[path = "binary/stub.rs"]
mod stub;
#[cfg(target_os = "linux")]
#[path = "binary/terminal.rs"]
mod terminal;
#[path = "binary/users.rs"]
mod users;
