//! The catalog in brief: the first step of an agent, below 10 KB.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CommandTree, ROOT, VERSION, built, help_group, leaves, plain, synopsis};
use crate::framework::output::{Cell, Row, text};

/// All commands in brief.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Version of the catalog.
    version: &'static str,
    /// Name of the client.
    cli: &'static str,
    /// Purpose of the client, and what to run next.
    description: String,
    /// All commands, in the order of the help.
    pub(crate) commands: Vec<SummaryLine>,
}

/// A command in brief.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SummaryLine {
    /// Full name, such as `auth login`.
    name: String,
    /// Heading in the help.
    group: &'static str,
    /// Usage.
    synopsis: String,
    /// Purpose in one line.
    description: String,
}

impl Row for SummaryLine {
    const EMPTY: &'static str = "No commands.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("GROUP", text(self.group)),
            ("SYNOPSIS", text(&self.synopsis)),
            ("DESCRIPTION", text(&self.description)),
        ]
    }
}

/// All commands of the client in brief.
pub(crate) fn summary(tree: CommandTree) -> Summary {
    let root = built(tree);
    let line = |(name, command): (String, &clap::Command)| SummaryLine {
        group: help_group(&name),
        synopsis: synopsis(command),
        description: plain(command.get_about()),
        name,
    };
    Summary {
        version: VERSION,
        cli: ROOT,
        description: format!(
            "{}. `svc catalog show <name>` prints one command completely.",
            plain(root.get_about())
        ),
        commands: leaves(&root).into_iter().map(line).collect(),
    }
}
