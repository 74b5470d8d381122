//! The tree of commands, a file a command. What is demanded of each one stands here, so that none can be added without
//! its entry in the catalog.

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

use crate::catalog::Overlay;
use crate::context::Context;
use crate::error::Result;

/// A command: its options are its fields, its help is its documentation.
pub(crate) trait Command: clap::Args {
    /// What the catalog and the help say of it beyond its options.
    fn overlay() -> Overlay;

    /// Does it.
    async fn run(self, context: &Context) -> Result<()>;
}

/// A command, or a group of them.
pub(crate) trait Node {
    /// The entries of all commands in it, in the order of the help.
    fn overlays() -> Vec<Overlay>;

    /// Does what was asked for.
    async fn run(self, context: &Context) -> Result<()>;
}

impl<C: Command> Node for C {
    fn overlays() -> Vec<Overlay> {
        vec![C::overlay()]
    }

    async fn run(self, context: &Context) -> Result<()> {
        Command::run(self, context).await
    }
}

/// Makes a group of commands: the enumeration that clap reads, and the [`Node`] that follows it variant by variant.
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
use group;

group!(
    /// The nouns.
    Commands {
        /// Log in and out, and look after sessions and your password.
        #[command(subcommand)]
        Auth(auth::Auth),
        /// Invite people, see them, and say what they may do.
        #[command(subcommand)]
        Users(users::Users),
        /// Look after the invites that are under way.
        #[command(subcommand)]
        Invites(invites::Invites),
        /// Create, see and suspend tenants, as the operator.
        #[command(subcommand)]
        Tenants(tenants::Tenants),
        /// Look after the keys that programs send events with.
        #[command(subcommand)]
        ApiKeys(api_keys::ApiKeys),
        /// Check and send events.
        #[command(subcommand)]
        Events(events::Events),
        Api(api::Api),
        /// What every command takes, prints and fails with, as data.
        #[command(subcommand)]
        Catalog(catalog::Catalog),
        /// Where this client keeps its files.
        #[command(subcommand)]
        Config(config::Config),
        Completion(completion::Completion),
        Version(version::Version),
    }
);
