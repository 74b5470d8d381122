//! `svc`: command line client and its command catalog. Writes data to standard output and everything else to standard
//! error. The exit status classifies the result.

mod api;
mod arguments;
mod catalog;
mod commands;
mod context;
mod credentials;
mod endpoint;
mod environment;
mod error;
mod help;
mod input;
mod output;
mod prompt;
mod run;

fn main() -> std::process::ExitCode {
    run::run()
}
