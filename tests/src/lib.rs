//! Fixtures of the cross-service tests: the real binaries as processes, and what people and programs do with them.
//!
//! Whatever a test starts ends with it, also when it panics, and a while later even when the test run itself is killed.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what a test cannot do without, it may fail on, in shared code too"
)]

mod environment;
mod inside;
mod person;
mod process;
mod producers;
mod proxy;
mod services;
mod standalone;
mod stream;
mod svc;
mod tree;

pub use environment::{given, tools, variable};
pub use inside::expect_nothing_of_the_inside;
pub use person::{Person, mail_to, raw_client, token_in};
pub use process::{Process, output_of};
pub use producers::Producers;
pub use proxy::Proxy;
pub use services::{Service, Services};
pub use standalone::{Away, Installation, Pids, Run, RunFile, Server};
pub use stream::Broker;
pub use svc::{Ran, Svc};
pub use tree::{Frozen, descendants, is_alive, kill};
