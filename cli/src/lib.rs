//! The command line client `svc` and its command catalog. Data goes to standard output, everything else to standard
//! error; the exit status says what came of it.

mod api;
mod arguments;
mod base_url;
mod blocking;
mod ca_file;
mod catalog;
mod commands;
mod context;
mod credentials;
mod environment;
mod error;
mod help;
mod output;
mod prompt;
mod run;

pub use run::run;
