//! Credentials under standing and time: the context alone, on a clock that the test moves.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

#[path = "standing/api_keys.rs"]
mod api_keys;
#[path = "standing/arrivals.rs"]
mod arrivals;
#[path = "standing/context.rs"]
mod context;
#[path = "standing/device.rs"]
mod device;
#[path = "standing/device_grants.rs"]
mod device_grants;
#[path = "standing/device_model.rs"]
mod device_model;
#[path = "standing/expiry.rs"]
mod expiry;
#[path = "standing/lifecycle.rs"]
mod lifecycle;
#[path = "standing/rfc8628.rs"]
mod rfc8628;
#[path = "standing/sessions.rs"]
mod sessions;
