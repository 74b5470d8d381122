//! Login throttling and the purge of the identity service on a manual clock.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

#[path = "throttle/api_key_notices.rs"]
mod api_key_notices;
#[path = "throttle/back_off.rs"]
mod back_off;
#[path = "throttle/context.rs"]
mod context;
#[path = "throttle/in_flight.rs"]
mod in_flight;
#[path = "throttle/lockout.rs"]
mod lockout;
#[path = "throttle/purge.rs"]
mod purge;
#[path = "throttle/second_factor.rs"]
mod second_factor;
