//! The `svc-standalone` binary with a real Postgres and nats-server: start, stop, restart and recovery.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod process {
    mod installation;
    mod permissions;
    mod up;
    mod with_servers;
}
