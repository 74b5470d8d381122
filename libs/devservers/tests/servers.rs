//! The servers with a real Postgres and nats-server.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod servers {
    mod lifecycle;
    mod permissions;
}
