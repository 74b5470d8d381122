//! The command line: traits of commands and groups, global options and the tree of commands. A command cannot be added
//! without its entry in the catalog.

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
mod manual;
mod tenants;
mod users;
mod version;

use clap::{CommandFactory, Parser};
#[cfg(fuzzing)]
pub use events::{fuzzed_checkpoint, fuzzed_events};

use crate::arguments::Globals;
use crate::catalog::{
    CatalogEntry, CommandTree, Errors, Examples, Names, OptionSchemas, Requirement, Routes, SchemaOf,
};
use crate::context::Context;
use crate::error::Result;
use crate::output::CommandOutput;

pub(crate) use manual::HelpText;

/// A command. Its fields are the options; its documentation is the help text. The constants are the part of its catalog
/// entry that clap cannot derive.
pub(crate) trait Command: clap::Args {
    /// Data that the command prints.
    type Output: CommandOutput;

    /// Prerequisites, which imply the errors that commands share.
    const REQUIRES: Requirement;
    /// Routes that the command calls, which imply the problems of the API.
    const ROUTES: Routes = Routes::Only(&[]);
    /// Local errors beyond those of the prerequisites.
    const ERRORS: Errors = &[];
    /// Descriptions and command lines; at least one.
    const EXAMPLES: Examples;
    /// Notes for an agent that runs the command.
    const AGENT_NOTES: &'static str;
    /// Names of related commands.
    const SEE_ALSO: Names;
    /// JSON Schema of the input.
    const INPUT_SCHEMA: Option<SchemaOf> = None;
    /// JSON Schemas of the files that options name.
    const OPTION_SCHEMAS: OptionSchemas = &[];
    /// How to find out whether the command had its effect after a lost response. For a command with a request that is not
    /// idempotent.
    const AFTER_LOST_RESPONSE: Option<&'static str> = None;
    /// Whether a command that calls no route changes nothing either.
    const READ_ONLY: bool = false;

    async fn run(self, context: &Context) -> Result<()>;
}

/// A command, or a group of commands.
pub(crate) trait Node {
    /// Catalog entries of all commands, in the order of the help.
    fn catalog() -> Vec<CatalogEntry>;

    /// Runs the selected command.
    async fn run(self, context: &Context) -> Result<()>;
}

impl<C: Command> Node for C {
    fn catalog() -> Vec<CatalogEntry> {
        vec![CatalogEntry::of::<C>()]
    }

    async fn run(self, context: &Context) -> Result<()> {
        Command::run(self, context).await.map_err(|error| CatalogEntry::of::<C>().explain(error))
    }
}

/// Defines a group of commands: the enumeration for clap, and its [`Node`].
macro_rules! group {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $variant:ident($node:ty)),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(clap::Subcommand)]
        pub(crate) enum $name { $($(#[$attribute])* $variant($node)),+ }

        impl $crate::commands::Node for $name {
            fn catalog() -> Vec<$crate::catalog::CatalogEntry> {
                [$(<$node as $crate::commands::Node>::catalog()),+].concat()
            }

            async fn run(self, context: &$crate::context::Context) -> $crate::error::Result<()> {
                match self { $(Self::$variant(node) => $crate::commands::Node::run(node, context).await),+ }
            }
        }
    };
}
pub(crate) use group;

/// The command tree of this client.
pub(crate) const TREE: CommandTree =
    CommandTree { command: CommandLine::command, entries: Commands::catalog };

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
        Api(api::Api),
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
