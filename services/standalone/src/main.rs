//! `svc-standalone`: see the library.

use std::process::ExitCode;

use clap::Parser as _;
use service::process::Allocator;
use standalone::command::Cli;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // Fails only when there is a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Box::pin(cli.run()).await.unwrap_or_else(|error| {
        eprintln!("svc-standalone: {error:#}");
        ExitCode::FAILURE
    })
}
