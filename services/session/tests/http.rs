//! The routes of session, over the whole system with a real database and broker. A file a resource.

#[path = "http/api_keys.rs"]
mod api_keys;
#[path = "http/auth_device.rs"]
mod auth_device;
#[path = "http/auth_session.rs"]
mod auth_session;
#[path = "http/auth_sessions.rs"]
mod auth_sessions;
#[path = "http/invalidations.rs"]
mod invalidations;
