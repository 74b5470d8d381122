//! The whole system as its users meet it: real processes, a real client, real servers, and what breaks under them.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without, it may fail on, in shared code too")]

mod system {
    mod configuration;
    mod consumer;
    mod device;
    mod faults;
    mod hostile;
    mod monitoring;
    mod revocation;
    mod routes;
    mod separate;
    mod standalone;
}
