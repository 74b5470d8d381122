//! The command line: traits of commands and groups, global options and the tree of commands. A command cannot be added
//! without its entry in the catalog.

mod api;
mod api_keys;
mod auth;
mod catalog;
mod client;
mod events;
mod invites;
mod tenants;
mod users;

use clap::{CommandFactory, Parser};

use crate::arguments::Globals;
use crate::catalog::{CommandTree, Overlay};
use crate::context::Context;
use crate::error::Result;

/// A command. Its fields are the options; its documentation is the help text.
pub(crate) trait Command: clap::Args {
    /// Catalog entry beyond the options.
    const OVERLAY: Overlay;

    async fn run(self, context: &Context) -> Result<()>;
}

/// A command, or a group of commands.
pub(crate) trait Node {
    /// Catalog entries of all commands, in the order of the help.
    fn overlays() -> Vec<Overlay>;

    /// Runs the selected command.
    async fn run(self, context: &Context) -> Result<()>;
}

impl<C: Command> Node for C {
    fn overlays() -> Vec<Overlay> {
        vec![C::OVERLAY]
    }

    async fn run(self, context: &Context) -> Result<()> {
        Command::run(self, context).await
    }
}

/// Defines a group of commands: the enumeration for clap, and its [`Node`].
macro_rules! group {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $variant:ident($node:ty)),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(clap::Subcommand)]
        pub(crate) enum $name { $($(#[$attribute])* $variant($node)),+ }

        impl $crate::commands::Node for $name {
            fn overlays() -> Vec<$crate::catalog::Overlay> {
                [$(<$node as $crate::commands::Node>::overlays()),+].concat()
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
        Config(client::Config),
        Completion(client::Completion),
        Version(client::Version),
    }
);
