//! What `--help` says: commands under headings, options under theirs, and the examples of the catalog.

use clap::{Command, CommandFactory};

use crate::arguments::CommandLine;
use crate::catalog::{Group, Overlay, leaves};
use crate::commands::{Commands, Node};

/// What a new user types first.
const FIRST_STEPS: &str = "\
Examples:
  svc auth login --email ada@acme.example --tenant acme
  svc users invite --email bob@acme.example --tenant acme
  svc auth sessions list
  svc events send --file events.ndjson

Every command takes --help, and --output json for scripts. `svc catalog show` describes all of them as data.";

/// The tree of commands as clap derives it.
pub(crate) fn bare_command() -> Command {
    CommandLine::command()
}

/// The tree of commands with everything that the help says.
pub(crate) fn command() -> Command {
    let overlays = Commands::overlays();
    let bare = bare_command();
    let mut help: Vec<(String, Overlay)> =
        leaves(&bare).into_iter().map(|(name, _)| name).zip(overlays).collect();
    let headings = headings(&bare, &help);
    let root = with_examples(with_fixed_usage(bare), "", &mut help);
    root.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{headings}\n\nGlobal options:\n{{options}}{{after-help}}"
    ))
    .after_help(FIRST_STEPS)
}

/// The nouns under the headings of their first commands.
fn headings(root: &Command, help: &[(String, Overlay)]) -> String {
    let width = root.get_subcommands().map(|noun| noun.get_name().len()).max().unwrap_or_default();
    let group_of = |noun: &Command| {
        help.iter()
            .find(|(name, _)| name.split(' ').next() == Some(noun.get_name()))
            .map(|(_, overlay)| overlay.group)
    };
    let listed = |group: &Group| {
        let nouns = root.get_subcommands().filter(|noun| group_of(noun) == Some(*group)).map(|noun| {
            let about = noun.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:width$}  {about}", noun.get_name())
        });
        let heading = std::iter::once(format!("{}:", group.name()));
        heading.chain(nouns).collect::<Vec<_>>().join("\n")
    };
    Group::ALL.iter().map(listed).collect::<Vec<_>>().join("\n\n")
}

/// Writes the usage of every command down. Made up for an error, it would show each option that the environment sets as
/// though it had to be typed.
fn with_fixed_usage(command: Command) -> Command {
    fn fix(command: Command, built: &Command) -> Command {
        let usage = built.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").trim().to_owned();
        command.override_usage(usage).mut_subcommands(|child| match built.find_subcommand(child.get_name()) {
            Some(built) => fix(child, built),
            None => child,
        })
    }
    let mut built = command.clone();
    built.build();
    fix(command, &built)
}

/// The commands below the first level whose last word is this one.
pub(crate) fn named_elsewhere(word: &str) -> Vec<String> {
    fn collect(command: &Command, path: &str, word: &str, found: &mut Vec<String>) {
        for child in command.get_subcommands() {
            let name = format!("{path} {}", child.get_name());
            if child.get_name() == word && path != "svc" {
                found.push(name.clone());
            }
            collect(child, &name, word, found);
        }
    }
    let mut found = Vec::new();
    collect(&bare_command(), "svc", word, &mut found);
    found
}

/// Puts the examples of each command under its help.
fn with_examples(command: Command, path: &str, help: &mut [(String, Overlay)]) -> Command {
    command.mut_subcommands(|child| {
        let name = format!("{path} {}", child.get_name()).trim_start().to_owned();
        if child.has_subcommands() {
            return with_examples(child, &name, help);
        }
        let Some((_, overlay)) = help.iter().find(|(named, _)| *named == name) else {
            return child;
        };
        let examples = overlay.examples.iter().map(|(what, line)| format!("  # {what}\n  {line}"));
        child.after_help(format!("Examples:\n{}", examples.collect::<Vec<_>>().join("\n")))
    })
}
