//! Help texts: commands and options under headings, with the examples of the catalog.

use clap::Command;

use crate::catalog::{CatalogEntry, CommandTree, HelpGroup, leaves};

const FIRST_STEPS: &str = "\
Examples:
  svc auth login --email ada@acme.example --tenant acme
  svc users invite --email bob@acme.example --tenant acme
  svc auth sessions list
  svc events send --file events.ndjson

Run a command with --help for its options, and with --output json in scripts.
`svc catalog show` prints a description of all commands as JSON.";

/// Examples in help texts have at most this number of columns.
const MAX_EXAMPLE_COLUMNS: usize = 78;

/// The clap command with complete help texts.
pub(crate) fn command(tree: CommandTree) -> Command {
    let root = (tree.command)();
    let names: Vec<String> = leaves(&root).into_iter().map(|(name, _)| name).collect();
    let help: Vec<(String, CatalogEntry)> = names.into_iter().zip((tree.entries)()).collect();
    let headings = headings(&root);
    let root = with_examples(with_fixed_usage(root), "", &help);
    root.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{headings}\n\nGlobal options:\n{{options}}{{after-help}}"
    ))
    .after_help(FIRST_STEPS)
}

/// Top-level commands, each under its heading.
fn headings(root: &Command) -> String {
    let width = root.get_subcommands().map(|child| child.get_name().len()).max().unwrap_or_default();
    let section = |group: &HelpGroup| {
        let children = root.get_subcommands().filter(|child| HelpGroup::of(child.get_name()) == *group);
        let lines = children.map(|child| {
            let about = child.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:width$}  {about}", child.get_name())
        });
        std::iter::once(format!("{}:", group.name())).chain(lines).collect::<Vec<_>>().join("\n")
    };
    HelpGroup::ALL.iter().map(section).collect::<Vec<_>>().join("\n\n")
}

/// Sets the usage line of every command. In errors, clap would otherwise show options that the environment sets as
/// required.
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

/// Full names of the commands below the first level that end with `word`.
pub(crate) fn full_names(tree: CommandTree, word: &str) -> Vec<String> {
    fn collect(command: &Command, path: &str, word: &str, names: &mut Vec<String>) {
        for child in command.get_subcommands() {
            let name = format!("{path} {}", child.get_name());
            if child.get_name() == word && path != "svc" {
                names.push(name.clone());
            }
            collect(child, &name, word, names);
        }
    }
    let mut names = Vec::new();
    collect(&(tree.command)(), "svc", word, &mut names);
    names
}

/// Breaks a long command line before options, with a backslash, so that it can be copied. clap would break it anywhere.
fn with_continuations(line: &str) -> String {
    let mut words = line.split(" --");
    let mut lines = vec![format!("  {}", words.next().unwrap_or_default())];
    for word in words {
        match lines.last_mut() {
            Some(last) if last.len() + word.len() + 5 <= MAX_EXAMPLE_COLUMNS => {
                last.push_str(" --");
                last.push_str(word);
            }
            _ => lines.push(format!("      --{word}")),
        }
    }
    lines.join(" \\\n").trim_start().to_owned()
}

/// Appends the examples of each command to its help.
fn with_examples(command: Command, path: &str, help: &[(String, CatalogEntry)]) -> Command {
    command.mut_subcommands(|child| {
        let name = format!("{path} {}", child.get_name()).trim_start().to_owned();
        if child.has_subcommands() {
            return with_examples(child, &name, help);
        }
        let Some((_, entry)) = help.iter().find(|(named, _)| *named == name) else {
            return child;
        };
        let examples =
            entry.examples.iter().map(|(what, line)| format!("  # {what}\n  {}", with_continuations(line)));
        child.after_help(format!("Examples:\n{}", examples.collect::<Vec<_>>().join("\n")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_examples_are_broken_before_options() {
        assert_eq!(with_continuations("svc users list --all"), "svc users list --all");
        let line = "svc tenants create acme --display-name \"Acme Ltd\" --admin-email ada@acme.example --delivery response";
        assert_eq!(
            with_continuations(line),
            "svc tenants create acme --display-name \"Acme Ltd\" \\\n      --admin-email ada@acme.example --delivery response"
        );
    }
}
