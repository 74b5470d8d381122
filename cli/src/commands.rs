//! The command line: global options and the tree of commands.

mod api;
mod api_keys;
mod audit;
mod auth;
mod catalog;
mod config;
mod consumers;
mod doctor;
mod events;
mod invites;
mod mails;
mod manual;
mod tenants;
mod users;
mod version;

use clap::{CommandFactory, Parser};
#[cfg(fuzzing)]
pub use events::{fuzzed_checkpoint, fuzzed_events};

use crate::framework::arguments::Globals;
use crate::framework::catalog::CommandTree;
use crate::framework::command::{Node, group};

pub(crate) use manual::HelpText;

/// The command tree of this client.
pub(crate) const TREE: CommandTree =
    CommandTree { command: || with_hyphen_positions(CommandLine::command()), entries: Commands::catalog };

/// A position can begin with a hyphen, and so can a number. Other values cannot: with a missing value, the next option would become it.
fn with_hyphen_positions(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_long() {
        Some("after") => arg.allow_hyphen_values(true),
        Some(_) if arg.get_action().takes_values() => arg.allow_negative_numbers(true),
        _ => arg,
    });
    command.mut_subcommands(with_hyphen_positions)
}

/// Manage users, sessions and tenants of the svc services, and send and read events.
#[derive(Parser)]
#[command(name = "svc", version, disable_help_subcommand = true)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Commands,
}

group!(
    /// Commands and command groups.
    Commands {
        /// Log in and out, and manage sessions and passwords.
        #[command(subcommand)]
        Auth(auth::Auth),
        /// Manage users.
        #[command(subcommand)]
        Users(users::Users),
        /// Manage invites.
        #[command(subcommand)]
        Invites(invites::Invites),
        /// Manage tenants as the platform administrator.
        #[command(subcommand)]
        Tenants(tenants::Tenants),
        /// Show mails that are not sent, as the platform administrator.
        #[command(subcommand)]
        Mails(mails::Mails),
        /// Manage API keys.
        #[command(subcommand)]
        ApiKeys(api_keys::ApiKeys),
        /// Send, validate and read events.
        #[command(subcommand)]
        Events(events::Events),
        /// Manage the consumers of events as the platform administrator.
        #[command(subcommand)]
        Consumers(consumers::Consumers),
        /// Read audit events.
        #[command(subcommand)]
        Audit(audit::Audit),
        Api(api::ApiCommand),
        /// Show and validate the command catalog.
        #[command(subcommand)]
        Catalog(catalog::Catalog),
        /// Show and change settings and contexts.
        #[command(subcommand)]
        Config(config::Config),
        Doctor(doctor::Doctor),
        Completion(manual::Completion),
        ManPages(manual::ManPages),
        Version(version::Version),
        Help(manual::Help),
    }
);
