//! `svc-identity`: the identity context as a process of its own.

use std::process::ExitCode;

use clap::Parser;
use database::migrations::Command as Migrate;
use hashing::{RawToken, SystemEntropy, TokenKind};
use identity::command::{BreachSetCommand, OutboxCommand};
use identity::{Identity, MIGRATIONS};
use service::config::Environment;
use service::process::{self, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The identity service: tenants, users, invites and passwords.
#[derive(Parser)]
#[command(
    name = "svc-identity",
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
    /// Migrate the schema `identity`
    #[command(subcommand)]
    Migrate(Migrate),
    /// Look at mails and other effects that have not come about, and let parked ones begin anew
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Make the file of breached passwords that `SVC_BREACH_FILE` names
    #[command(subcommand)]
    BreachSet(BreachSetCommand),
    /// Print a fresh operator token, for `SVC_PLATFORM_TOKEN`
    PlatformToken,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let environment = Environment::of_process();
    // The first provider stays; this is the only call in the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match arguments.command {
        Some(Subcommand::Migrate(command)) => MIGRATIONS.execute(command, &environment).await,
        Some(Subcommand::Outbox(command)) => command.execute(&environment).await,
        Some(Subcommand::BreachSet(command)) => command.execute(),
        Some(Subcommand::PlatformToken) => {
            println!("{}", RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose());
            ExitCode::SUCCESS
        }
        None if arguments.check_config => process::check_config::<Identity>(&environment),
        None => process::run::<Identity>(&environment).await,
    }
}
