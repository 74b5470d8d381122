//! The real binary with a real Postgres and nats-server: what it starts, survives, stops and leaves.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without, it may fail on, in shared code too")]

mod process {
    mod installation;
    mod permissions;
    mod servers;
    mod up;
    mod with_servers;
}
