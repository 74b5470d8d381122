//! `svc-ingest`: the ingest context as a process of its own.

use std::process::ExitCode;

use clap::Parser;
use ingest::Ingest;
use service::config::Environment;
use service::process::{self, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The ingest service: takes UDM events and puts them into the stream.
#[derive(Parser)]
#[command(
    name = "svc-ingest",
    version,
    after_help = "Configuration comes from SVC_ variables; see docs/configuration.md."
)]
struct Arguments {
    /// Print the effective configuration with secrets withheld, and exit
    #[arg(long)]
    check_config: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let environment = Environment::of_process();
    // The first provider stays; this is the only call in the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if arguments.check_config {
        return process::check_config::<Ingest>(&environment);
    }
    process::run::<Ingest>(&environment).await
}
