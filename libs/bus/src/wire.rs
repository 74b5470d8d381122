//! A small NATS client: handshake with TLS and credentials, messages with headers, and their replies. It knows nothing about streams
//! and acknowledgements. [`Publisher`](crate::Publisher) uses it, and what [listens](listen) to requests of consumers, because the
//! client library closes its connection at malformed headers. Everything else uses the client library.
//!
//! It exists for the CPU time of ingest. A burst of messages is written into one buffer, and replies are parsed in place. The
//! client library passes each message through a queue, and allocates each header and each reply. CPU time per event of 0.5 kB
//! with its headers, of the publisher with this module and with the connection of async-nats 0.51 and one reply inbox (six
//! interleaved pairs of runs, two shared cores, median and range):
//!
//! | | this module | client library | difference |
//! | --- | --- | --- | --- |
//! | batches of 500, four at a time | 1.9 µs (1.8 to 2.4) | 4.6 µs (4.2 to 5.6) | 2.4 to 3.2 µs |
//! | single events, 64 at a time | 5.0 µs (4.2 to 6.4) | 14.5 µs (8.0 to 15.1) | 3.8 to 9.9 µs |
//!
//! ingest needs 6 µs per event of a batch and 34 µs per single event in total, so the client library would cost at least 40 %
//! and 11 % more.

mod connection;
mod listener;
mod protocol;
mod tls;

pub(crate) use connection::{Dialer, Reader, WireConnection};
pub(crate) use listener::listen;
#[cfg(fuzzing)]
pub use protocol::fuzzed as fuzzed_operations;
pub(crate) use protocol::{
    Malformed, PING, PONG, Reply, ServerMessage, ServerOperation, headers_size, write_message, write_request,
    write_subscription,
};
