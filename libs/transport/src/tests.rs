//! A contract suite for both transports, and tests of the HTTP transport against a scripted server.

mod batches;
mod cancellation;
mod concurrency;
mod conformance;
mod embedding;
mod errors;
mod flush;
mod linger;
mod outage_log;
mod pipeline;
mod progress;
mod requests;
mod retries;
pub(crate) mod server;
mod tls;
mod token_file;
