//! Traits of commands and groups of commands. A command cannot be added without its entry in the catalog.

use crate::catalog::Overlay;
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

        impl $crate::command::Node for $name {
            fn overlays() -> Vec<$crate::catalog::Overlay> {
                [$(<$node as $crate::command::Node>::overlays()),+].concat()
            }

            async fn run(self, context: &$crate::context::Context) -> $crate::error::Result<()> {
                match self { $(Self::$variant(node) => $crate::command::Node::run(node, context).await),+ }
            }
        }
    };
}
pub(crate) use group;
