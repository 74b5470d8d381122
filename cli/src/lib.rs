//! `svc`: command line client and its command catalog. Writes data to standard output and everything else to standard
//! error. The exit status classifies the result.

mod address;
mod api;
mod arguments;
mod catalog;
mod commands;
mod context;
mod contexts;
mod credential;
mod credentials;
mod endpoint;
mod environment;
mod error;
mod files;
mod help;
mod input;
mod input_file;
mod keyring;
mod output;
mod prompt;
mod run;
mod settings;
mod signals;
mod since;
mod terminal;
mod token;

#[cfg(fuzzing)]
pub use commands::{fuzzed_checkpoint, fuzzed_events};
#[cfg(fuzzing)]
pub use contexts::fuzzed as fuzzed_configuration;
#[cfg(fuzzing)]
pub use credentials::fuzzed as fuzzed_credentials;
pub use run::run;
