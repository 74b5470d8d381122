//! `svc completion`

use clap::Args;
use clap_complete::Shell;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::help;
use crate::output::{Report, Table};

/// Print the script that completes commands and options in a shell.
#[derive(Args)]
pub(crate) struct Completion {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A completion script.
#[derive(Serialize, JsonSchema)]
struct Script {
    /// The shell that it is for.
    shell: String,
    /// The script.
    script: String,
}

impl Report for Script {
    fn table(&self) -> Table {
        Table::of_text(&self.script)
    }
}

impl Command for Completion {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Tools,
            access: Access::Offline,
            examples: &[
                ("Print the script for bash, to be sourced", "svc completion bash"),
                ("The same for zsh", "svc completion zsh"),
            ],
            agent_notes: "Works offline. Of no use to an agent.",
            see_also: &["catalog show"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Script>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(), "svc", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        context.out().print(&Script { shell: self.shell.to_string(), script })
    }
}
