//! `svc completion`: shell completion scripts.

use clap::Args;
use clap_complete::Shell;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{HelpGroup, Overlay, Requirement, Routes, schema_of};
use crate::command::Command;
use crate::context::Context;
use crate::error::Result;
use crate::help;
use crate::output::{CommandOutput, Table};

/// Print a shell completion script.
#[derive(Args)]
pub(crate) struct Completion {
    /// Shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A completion script.
#[derive(Serialize, JsonSchema)]
struct CompletionScript {
    /// Shell.
    shell: String,
    /// Script.
    script: String,
}

impl CommandOutput for CompletionScript {
    fn table(&self) -> Table {
        Table::text(&self.script)
    }
}

impl Command for Completion {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Tools,
        requires: Requirement::Nothing,
        routes: Routes::NONE,
        errors: &[],
        examples: &[
            ("Print the completion script for bash", "svc completion bash"),
            ("Print the completion script for zsh", "svc completion zsh"),
        ],
        agent_notes: "Works offline. Only useful in an interactive shell.",
        see_also: &["catalog show"],
        input_schema: None,
        output_schema: Some(schema_of::<CompletionScript>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(context.tree()), "svc", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        context.out().print(&CompletionScript { shell: self.shell.to_string(), script })
    }
}
