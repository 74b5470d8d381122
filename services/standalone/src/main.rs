//! `svc-standalone`: runs the whole system, or servers for tests, on one machine.

use std::process::ExitCode;

use clap::Parser as _;
use service::process::Allocator;
use standalone::command::Cli;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Box::pin(cli.run()).await.unwrap_or_else(|error| {
        eprintln!("svc-standalone: {error:#}");
        ExitCode::FAILURE
    })
}
