//! Command line client `svc` and its command catalog. Writes data to standard output and everything else to standard
//! error. The exit status classifies the result.

mod api;
mod arguments;
mod base_url;
mod ca_file;
mod catalog;
mod command;
mod commands;
mod context;
mod credentials;
mod environment;
mod error;
mod globals;
mod help;
mod input;
mod output;
mod prompt;
mod run;

pub use run::run;
