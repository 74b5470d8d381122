//! `svc-session`: the session context as a process of its own.

use std::process::ExitCode;

use clap::Parser;
use database::migrations::Command as Migrate;
use service::config::Environment;
use service::process::{self, Allocator};
use session::{MIGRATIONS, Session};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The session service: sessions, and who stands behind a bearer credential.
#[derive(Parser)]
#[command(
    name = "svc-session",
    version,
    after_help = "Configuration comes from SVC_ variables; see docs/configuration.md."
)]
struct Arguments {
    /// Print the effective configuration with secrets withheld, and exit
    #[arg(long)]
    check_config: bool,
    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Migrate the schema `session`
    #[command(subcommand)]
    Migrate(Migrate),
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let environment = Environment::of_process();
    // The first provider stays; this is the only call in the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match arguments.command {
        Some(Subcommand::Migrate(command)) => MIGRATIONS.execute(command, &environment).await,
        None if arguments.check_config => process::check_config::<Session>(&environment),
        None => process::run::<Session>(&environment).await,
    }
}
