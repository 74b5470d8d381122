//! The command line: global options and the tree of commands.

mod api;
mod api_keys;
mod auth;
mod catalog;
mod completion;
mod config;
mod events;
mod invites;
mod tenants;
mod users;
mod version;

use clap::{CommandFactory, Parser};

use crate::catalog::CommandTree;
use crate::command::{Node, group};
use crate::globals::Globals;

/// The command tree of this client.
pub(crate) const TREE: CommandTree =
    CommandTree { command: CommandLine::command, overlays: Commands::overlays };

/// Manage users, sessions and tenants of the svc services, and send events.
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
        /// Manage API keys.
        #[command(subcommand)]
        ApiKeys(api_keys::ApiKeys),
        /// Send and validate events.
        #[command(subcommand)]
        Events(events::Events),
        Api(api::Api),
        /// Show and validate the command catalog.
        #[command(subcommand)]
        Catalog(catalog::Catalog),
        /// Show the configuration of this client.
        #[command(subcommand)]
        Config(config::Config),
        Completion(completion::Completion),
        Version(version::Version),
    }
);
