//! Both transports against one suite, and the HTTP transport against a server that answers as scripted.

mod batches;
pub(crate) mod clock;
mod conformance;
mod faults;
mod mock;
mod requests;
mod server;
mod tls;
mod waits;
