//! Fixtures for tests: databases, brokers and mail servers on loopback, an HTTP client, and waiting for conditions.
//!
//! It links no service, so that libraries can be tested alone. `testsystem` starts the whole system.

#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failed setup fails the test")]

mod authenticator;
pub mod certificates;
pub mod client;
mod forwarder;
mod guarded;
pub mod nats;
pub mod postgres;
pub mod smtp;
mod token_reviews;
mod totp;
mod wait;

pub use authenticator::Authenticator;
pub use certificates::Certificates;
pub use client::{Client, TestResponse};
pub use forwarder::{Disturbance, Forwarder};
pub use futures::future::join_all;
pub use nats::{NatsCluster, NatsServer};
pub use postgres::TestDatabase;
pub use smtp::MailServer;
pub use token_reviews::{TokenReviews, service_account_token};
pub use totp::{totp, totp_after, totp_step};
pub use wait::{DEADLINE, wait_until, within};

/// A password that satisfies the default password policy.
pub const PASSWORD: &str = "correct-horse-battery-9";

/// Minimal Argon2 settings. On a machine that runs many tests, a hash with the default ones can take longer than a request.
pub const CHEAP_HASHES: [(&str, &str); 2] = [("SVC_ARGON2_TIME_COST", "1"), ("SVC_ARGON2_MEMORY_COST", "64")];

/// Turns off the rate limits: all clients of a test have the same address.
pub const LIMITS_OFF: [(&str, &str); 9] = [
    ("SVC_LIMIT_LOGIN", "off"),
    ("SVC_LIMIT_RESET", "off"),
    ("SVC_LIMIT_TOKEN", "off"),
    ("SVC_LIMIT_DEVICE", "off"),
    ("SVC_LIMIT_INVITE", "off"),
    ("SVC_LIMIT_DEFAULT", "off"),
    ("SVC_LIMIT_CREDENTIAL", "off"),
    ("SVC_LIMIT_EVENT_STREAM", "off"),
    ("SVC_LIMIT_AUDIT", "off"),
];

/// Returns the number of random schedules of a simulation: `SVC_TEST_SCHEDULES`, which `make simulate` sets, or the usual number.
///
/// # Panics
/// `SVC_TEST_SCHEDULES` is not a number.
pub fn schedules(usual: u32) -> u32 {
    #[expect(clippy::disallowed_methods, reason = "a setting of the tests")]
    let number = std::env::var("SVC_TEST_SCHEDULES");
    number.map_or(usual, |text| text.parse().expect("SVC_TEST_SCHEDULES is a number"))
}
