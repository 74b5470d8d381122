//! The routes of identity, over the whole system with a real database and broker. A file a resource.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

#[path = "http/accept_invite.rs"]
mod accept_invite;
#[path = "http/api_keys.rs"]
mod api_keys;
#[path = "http/audit.rs"]
mod audit;
#[path = "http/breach_set.rs"]
mod breach_set;
#[path = "http/docs.rs"]
mod docs;
#[path = "http/invites.rs"]
mod invites;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/lock_out.rs"]
mod lock_out;
#[path = "http/login.rs"]
mod login;
#[path = "http/openapi.rs"]
mod openapi;
#[path = "http/pages.rs"]
mod pages;
#[path = "http/password_change.rs"]
mod password_change;
#[path = "http/password_reset.rs"]
mod password_reset;
#[path = "http/row_security.rs"]
mod row_security;
#[path = "http/standing.rs"]
mod standing;
#[path = "http/tenants.rs"]
mod tenants;
#[path = "http/users.rs"]
mod users;
