//! Commands and groups of commands. A command cannot be added without its entry in the catalog.

use crate::framework::catalog::{
    CatalogEntry, Errors, Examples, Names, OptionSchemas, Requirement, Routes, SchemaOf, schema_of,
};
use crate::framework::context::Context;
use crate::framework::error::Result;
use crate::framework::output::CommandOutput;

/// A command. Its fields are the options; its documentation is the help text. The constants are the part of its catalog
/// entry that clap cannot derive.
pub(crate) trait Command: clap::Args {
    /// Data that the command prints.
    type Output: CommandOutput;

    /// Prerequisites, which imply the errors that commands share: what the first route accepts.
    const REQUIRES: Requirement = Self::ROUTES.requirement();
    /// Routes that the command calls, which imply the problems of the API. The first one is that of its purpose.
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
    /// What to do if the command had its effect, and its output could not be written.
    const AFTER_LOST_OUTPUT: Option<&'static str> = Self::AFTER_LOST_RESPONSE;
    /// Whether a command that calls no route changes nothing either.
    const READ_ONLY: bool = false;
    /// Whether a command that only reads from the service can write a file.
    const WRITES_FILE: bool = false;

    /// Runs the command and returns the data to print.
    async fn run(self, context: &Context) -> Result<Self::Output>;
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
        vec![entry::<C>()]
    }

    async fn run(self, context: &Context) -> Result<()> {
        let entry = entry::<C>();
        let output = Command::run(self, context).await.map_err(|error| entry.explain(error))?;
        let error = output.error().map(|error| entry.explain(error));
        match context.out().print(&output) {
            Ok(()) => {}
            Err(lost) if output.is_read() => return Err(lost),
            Err(lost) => return Err(entry.lost_output(lost, error)),
        }
        context.print_later_messages();
        error.map_or(Ok(()), Err)
    }
}

/// The constants of a command.
fn entry<C: Command>() -> CatalogEntry {
    CatalogEntry {
        requires: C::REQUIRES,
        routes: C::ROUTES,
        errors: C::ERRORS,
        examples: C::EXAMPLES,
        agent_notes: C::AGENT_NOTES,
        see_also: C::SEE_ALSO,
        input_schema: C::INPUT_SCHEMA,
        output_schema: schema_of::<C::Output>,
        option_schemas: C::OPTION_SCHEMAS,
        after_lost_response: C::AFTER_LOST_RESPONSE,
        after_lost_output: C::AFTER_LOST_OUTPUT,
        changes_nothing: C::READ_ONLY,
        writes_file: C::WRITES_FILE,
    }
}

/// Defines a group of commands: the enumeration for clap, and its [`Node`].
macro_rules! group {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $variant:ident($node:ty)),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(clap::Subcommand)]
        pub(crate) enum $name { $($(#[$attribute])* $variant($node)),+ }

        impl $crate::framework::command::Node for $name {
            fn catalog() -> Vec<$crate::framework::catalog::CatalogEntry> {
                [$(<$node as $crate::framework::command::Node>::catalog()),+].concat()
            }

            async fn run(self, context: &$crate::framework::context::Context) -> $crate::framework::error::Result<()> {
                match self { $(Self::$variant(node) => $crate::framework::command::Node::run(node, context).await),+ }
            }
        }
    };
}
pub(crate) use group;

/// Defines the result of a command that ends one object: its id, a field that is always true, and optionally one with what a person
/// recognises the object by.
macro_rules! ended {
    ($(#[$doc:meta])* $name:ident {
        $(#[$id_doc:meta])* $id:ident: $type:ty, $ended:ident $(, $(#[$label_doc:meta])* $label:ident)?
    }: $message:literal) => {
        $(#[$doc])*
        #[derive(serde::Serialize, schemars::JsonSchema)]
        pub(crate) struct $name {
            $(#[$id_doc])*
            $id: $type,
            /// Always true.
            $ended: bool,
            $(
                $(#[$label_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                $label: Option<String>,
            )?
        }

        impl $name {
            fn new($id: $type $(, $label: Option<String>)?) -> Self {
                Self { $id, $ended: true $(, $label)? }
            }
        }

        impl $crate::framework::output::CommandOutput for $name {
            fn table(&self) -> $crate::framework::output::Table {
                $(if let Some(label) = &self.$label {
                    return $crate::framework::output::Table::message(&format!("{label}: {}", $message));
                })?
                $crate::framework::output::Table::message($message)
            }
        }
    };
}
pub(crate) use ended;
