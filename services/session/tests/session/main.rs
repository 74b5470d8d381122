//! Tests of the session context against a real database and broker, one module per feature.
//!
//! Tests that use `testsystem::TestSystem` run the whole system. Tests that use `context::Context` run the context alone, with a clock
//! that the test controls.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

mod account_status;
mod api_keys;
mod changes;
mod context;
mod credential_uses;
mod device_login;
mod invalidations;
mod producers;
mod sessions;
