//! Reads events of a real nats-server with the accounts of `deploy/nats`.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod consumer {
    mod batches;
    mod broker;
    mod connection;
    mod crashes;
    mod dead_letters;
    mod delivery;
    mod event_types;
    mod handlers;
    mod interruptions;
    mod recovery;
}
