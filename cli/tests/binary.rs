//! Tests of the binary, without a service and with a stub of the service.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "binary/addresses.rs"]
mod addresses;
#[path = "binary/api.rs"]
mod api;
#[path = "binary/api_keys.rs"]
mod api_keys;
#[path = "binary/audit.rs"]
mod audit;
#[path = "binary/catalog.rs"]
mod catalog;
#[path = "binary/certificates.rs"]
mod certificates;
#[path = "binary/client.rs"]
mod client;
#[path = "binary/confirmation.rs"]
mod confirmation;
#[path = "binary/consumers.rs"]
mod consumers;
#[path = "binary/contexts.rs"]
mod contexts;
#[path = "binary/credentials.rs"]
mod credentials;
#[path = "binary/dead_letters.rs"]
mod dead_letters;
#[path = "binary/device.rs"]
mod device;
#[path = "binary/doctor.rs"]
mod doctor;
#[path = "binary/environment.rs"]
mod environment;
#[path = "binary/event_files.rs"]
mod event_files;
#[path = "binary/events.rs"]
mod events;
#[path = "binary/factors.rs"]
mod factors;
#[path = "binary/help.rs"]
mod help;
#[cfg(target_os = "linux")]
#[path = "binary/input_files.rs"]
mod input_files;
#[cfg(target_os = "linux")]
#[path = "binary/interruptions.rs"]
mod interruptions;
#[cfg(target_os = "linux")]
#[path = "binary/interrupts.rs"]
mod interrupts;
#[path = "binary/invites.rs"]
mod invites;
#[cfg(target_os = "linux")]
#[path = "binary/keyring.rs"]
mod keyring;
#[path = "binary/lists.rs"]
mod lists;
#[path = "binary/logins.rs"]
mod logins;
#[cfg(target_os = "linux")]
#[path = "binary/lost_responses.rs"]
mod lost_responses;
#[path = "binary/offline.rs"]
mod offline;
#[path = "binary/passwords.rs"]
mod passwords;
#[cfg(target_os = "linux")]
#[path = "binary/prompts.rs"]
mod prompts;
#[cfg(target_os = "linux")]
#[path = "binary/protected_files.rs"]
mod protected_files;
#[path = "binary/proxies.rs"]
mod proxies;
#[path = "binary/remediations.rs"]
mod remediations;
#[path = "binary/sessions.rs"]
mod sessions;
#[cfg(target_os = "linux")]
#[path = "binary/signals.rs"]
mod signals;
#[cfg(target_os = "linux")]
#[path = "binary/snapshots.rs"]
mod snapshots;
#[path = "binary/stub.rs"]
mod stub;
#[cfg(target_os = "linux")]
#[path = "binary/tables.rs"]
mod tables;
#[path = "binary/tail.rs"]
mod tail;
#[path = "binary/tenants.rs"]
mod tenants;
#[cfg(target_os = "linux")]
#[path = "binary/terminal.rs"]
mod terminal;
#[path = "binary/users.rs"]
mod users;
#[path = "binary/version.rs"]
mod version;
