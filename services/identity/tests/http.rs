//! HTTP tests of the identity service on the whole system, one file per resource.

#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

#[path = "http/accept_invite.rs"]
mod accept_invite;
#[path = "http/account_status.rs"]
mod account_status;
#[path = "http/api_keys.rs"]
mod api_keys;
#[path = "http/audit.rs"]
mod audit;
#[path = "http/breach_set.rs"]
mod breach_set;
#[path = "http/docs.rs"]
mod docs;
#[path = "http/erasure.rs"]
mod erasure;
#[path = "http/invites.rs"]
mod invites;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/lockout.rs"]
mod lockout;
#[path = "http/login.rs"]
mod login;
#[path = "http/managed_tenants.rs"]
mod managed_tenants;
#[path = "http/openapi.rs"]
mod openapi;
#[path = "http/page_session.rs"]
mod page_session;
#[path = "http/pages.rs"]
mod pages;
#[path = "http/passkey_login.rs"]
mod passkey_login;
#[path = "http/passkey_setup.rs"]
mod passkey_setup;
#[path = "http/passkeys.rs"]
mod passkeys;
#[path = "http/password_change.rs"]
mod password_change;
#[path = "http/password_reset.rs"]
mod password_reset;
#[path = "http/row_security.rs"]
mod row_security;
#[path = "http/second_factor.rs"]
mod second_factor;
#[path = "http/streams.rs"]
mod streams;
#[path = "http/tenants.rs"]
mod tenants;
#[path = "http/trial.rs"]
mod trial;
#[path = "http/users.rs"]
mod users;
