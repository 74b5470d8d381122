//! `svc`: command line client and its command catalog. Writes data to standard output and everything else to standard
//! error. The exit status classifies the result.

mod commands;
mod framework;
mod run;

#[cfg(fuzzing)]
pub use commands::{fuzzed_checkpoint, fuzzed_events};
#[cfg(fuzzing)]
pub use framework::configuration::fuzzed as fuzzed_configuration;
#[cfg(fuzzing)]
pub use framework::credentials::fuzzed as fuzzed_credentials;
pub use run::run;
