//! Topics of `svc help` about all commands, from the tables of the catalog.

use super::entry::{Requirement, Variable};
use super::{CommandTree, built, option};
use crate::framework::error::Exit;

/// A topic of `svc help`.
pub(crate) struct Topic {
    /// Name in the command line.
    pub(crate) name: &'static str,
    /// Heading of the section in the manual page of `svc`.
    pub(crate) heading: &'static str,
    /// What the entries have in common, in lines that fit 80 columns.
    introduction: &'static str,
    /// Names and meanings.
    entries: fn(CommandTree) -> Vec<(String, String)>,
}

impl Topic {
    /// All topics, in the order of the help.
    pub(crate) const ALL: &[Self] = &[
        Self {
            name: "environment",
            heading: "ENVIRONMENT",
            introduction: "\
Environment variables of all commands. An option has precedence over its
variable, and a variable over the context. An empty variable counts as unset.

Of the credentials, a command uses the first one that it accepts and that is
set, else the stored login. `svc catalog show <command>` names those that it
accepts.",
            entries: variables,
        },
        Self {
            name: "exit-codes",
            heading: "EXIT STATUS",
            introduction: "\
Exit codes of all commands. `svc catalog show <command>` prints those of one
command and its errors.",
            entries: |_| {
                let entry = |exit: &Exit| (exit.code().to_string(), exit.meaning().to_owned());
                Exit::ALL.iter().map(entry).collect()
            },
        },
    ];

    /// Text, with one line per variable or exit code. Parts of a line that is broken are indented by the returned number of columns.
    pub(crate) fn text(&self, tree: CommandTree) -> (String, usize) {
        let entries = (self.entries)(tree);
        let width = entries.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let line = |(name, meaning): &(String, String)| format!("  {name:width$}  {meaning}\n");
        let lines: String = entries.iter().map(line).collect();
        (format!("{}\n\n{lines}", self.introduction), width + 4)
    }
}

/// The variables of global options, of credentials in the order of their precedence, and the others.
fn variables(tree: CommandTree) -> Vec<(String, String)> {
    let root = built(tree);
    let of_options = root.get_arguments().filter_map(|arg| option(arg, &[])).filter_map(|option| {
        let default = option.default.map(|value| format!(" [default: {value}]")).unwrap_or_default();
        Some((option.env?, format!("{}: {}{default}", option.flag, option.description)))
    });
    let others = Requirement::CredentialOrPlatformToken.variables().iter().chain(Variable::COMMON);
    of_options.chain(others.flat_map(Variable::meanings)).collect()
}
