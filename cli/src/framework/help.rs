//! Help texts: commands and options under headings, with the examples of the catalog.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use clap::builder::Str;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, ValueHint};

use crate::framework::catalog::{CommandTree, HELP_GROUPS, Topic, built, help_group, leaves, nodes};
use crate::framework::environment;
use crate::framework::error::{self, CliError};
use crate::framework::output::wrapped;

const FIRST_STEPS: &[&str] = &[
    "svc auth login --email ada@acme.example --tenant acme",
    "svc users invite --email bob@acme.example --tenant acme",
    "svc auth sessions list",
    "svc events send --file events.ndjson",
];

const NEXT: &str = "\
`svc help <command>` prints the options of a command. Scripts pass -o json.
`svc catalog show` prints a description of all commands as JSON.";

/// Points from the short help to the global options.
const GLOBAL_OPTIONS: &str = "For global options, run `svc help`.";

/// Examples in help texts have at most this number of columns.
const MAX_EXAMPLE_COLUMNS: usize = 78;
/// Lines of a usage have at most this number of columns, after `Usage: ` or an indentation.
const MAX_USAGE_COLUMNS: usize = 69;
/// Lines of errors about missing arguments have at most this number of columns.
const MAX_ERROR_COLUMNS: usize = 80;
/// Examples of a group, one per command.
const MAX_GROUP_EXAMPLES: usize = 4;
/// Maximum number of commands of other groups that are suggested.
const MAX_SUGGESTIONS: usize = 3;

/// The clap command with complete help texts.
pub(crate) fn command(tree: CommandTree) -> Command {
    let root = (tree.command)();
    let globals = global_options(&root);
    let headings = headings(&root);
    let examples = examples(tree);
    // A separate section lists them more briefly than clap.
    let root = root.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    let first_steps = format!("  {}\n", FIRST_STEPS.join("\n  "));
    let topics: Vec<_> = Topic::ALL.iter().map(|topic| format!("`svc help {}`", topic.name)).collect();
    let next = format!("{NEXT}\nHelp topics: {}.", topics.join(" and "));
    completed(root, &built(tree), "", &examples, &globals)
        .help_template(format!(
            "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{headings}\n\nOptions:\n{{options}}{{after-help}}"
        ))
        .after_help(format!("Examples:\n{first_steps}\n{next}\n\n{GLOBAL_OPTIONS}"))
        .after_long_help(format!("{globals}\n\nExamples:\n{first_steps}\n{next}"))
}

/// Help of the command with this name, as `--help` (or `-h`) prints it. An error of clap if there is no such command.
pub(crate) fn text(tree: CommandTree, words: &[String], option: &str) -> Result<String, clap::Error> {
    let arguments = ["svc"].into_iter().chain(words.iter().map(String::as_str)).chain([option]);
    match command(tree).try_get_matches_from(arguments) {
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(error.render().to_string()),
        Err(error) => Err(error),
        // The help option is never valid.
        Ok(_) => Ok(String::new()),
    }
}

/// Section of the global options, one line for most of them.
fn global_options(root: &Command) -> String {
    let options = root.get_arguments().filter(|arg| arg.is_global_set()).cloned();
    let mut section = Command::new("svc").disable_help_flag(true).help_template("{options}");
    section = section.args(options.map(|arg| arg.help_heading(None::<&str>)));
    format!("Global options:\n{}", section.render_help().to_string().trim_end())
}

/// Top-level commands, each under its heading.
fn headings(root: &Command) -> String {
    let width = root.get_subcommands().map(|child| child.get_name().len()).max().unwrap_or_default();
    let section = |group: &str| {
        let children = root.get_subcommands().filter(|child| help_group(child.get_name()) == group);
        let lines = children.map(|child| {
            let about = child.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:width$}  {about}", child.get_name())
        });
        std::iter::once(format!("{group}:")).chain(lines).collect::<Vec<_>>().join("\n")
    };
    HELP_GROUPS.map(section).join("\n\n")
}

/// Breaks a long usage line between arguments and between alternatives. clap would print it on one line.
fn wrapped_usage(usage: &str) -> String {
    let mut depth = 0_usize;
    let ends_part = |c: char| {
        match c {
            '<' | '[' => depth += 1,
            '>' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '|' || (c == ' ' && depth == 0)
    };
    let mut lines = vec![String::new()];
    for part in usage.split_inclusive(ends_part) {
        match lines.last_mut() {
            Some(line) if line.len() + part.trim_end().len() <= MAX_USAGE_COLUMNS => line.push_str(part),
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n           ")
}

/// Full names of the commands below the first level that end with `word`.
fn full_names(tree: CommandTree, word: &str) -> Vec<String> {
    let root = (tree.command)();
    let is_named = |name: &str| name.rsplit_once(' ').is_some_and(|(_, last)| last == word);
    let names = nodes(&root).into_iter().filter(|(name, _)| is_named(name));
    names.map(|(name, _)| format!("svc {name}")).collect()
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

/// Descriptions and command lines of each command by its full name. A group has the first example of each of its commands.
pub(crate) fn examples(tree: CommandTree) -> BTreeMap<String, Vec<(&'static str, &'static str)>> {
    let root = (tree.command)();
    let mut examples: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for ((name, _), entry) in leaves(&root).into_iter().zip((tree.entries)()) {
        let groups = name.match_indices(' ').map(|(end, _)| name[..end].to_owned());
        for group in groups {
            let group = examples.entry(group).or_default();
            group.extend(entry.examples.first().filter(|_| group.len() < MAX_GROUP_EXAMPLES));
        }
        examples.insert(name, entry.examples.to_vec());
    }
    examples
}

/// Lines of an example: what it does as a comment, then the command line.
pub(crate) fn example_lines((what, line): (&str, &str)) -> String {
    format!("  # {what}\n  {}", with_continuations(line))
}

/// Sets the usage line of each command, and appends its examples to its help and the global options to its long help. In errors, clap
/// would otherwise show options that the environment sets as required.
fn completed(
    command: Command,
    built: &Command,
    path: &str,
    examples: &BTreeMap<String, Vec<(&'static str, &'static str)>>,
    globals: &str,
) -> Command {
    let usage = built.clone().render_usage().to_string();
    let usage = wrapped_usage(usage.trim_start_matches("Usage:").trim());
    command.override_usage(usage).mut_subcommands(|child| {
        let Some(built) = built.find_subcommand(child.get_name()) else { return child };
        let name = format!("{path} {}", child.get_name()).trim_start().to_owned();
        let lines: Vec<_> = examples.get(&name).into_iter().flatten().map(|it| example_lines(*it)).collect();
        let lines = format!("Examples:\n{}", lines.join("\n"));
        completed(child, built, &name, examples, globals)
            .mut_args(with_hint)
            .after_help(format!("{lines}\n\n{GLOBAL_OPTIONS}"))
            .after_long_help(format!("{globals}\n\n{lines}"))
    })
}

/// The command in the usage line of an error, such as `svc catalog [OPTIONS] <COMMAND>`, after its full name.
fn command_of(tree: CommandTree, error: &clap::Error) -> Option<(String, Command)> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    let words = usage.split_whitespace().skip_while(|word| *word != "svc").skip(1);
    let mut command = (tree.command)();
    let mut path = "svc".to_owned();
    for word in words.take_while(|word| !word.starts_with(['[', '<'])) {
        path = format!("{path} {word}");
        command = command.find_subcommand(word)?.clone();
    }
    Some((path, command))
}

/// Names of the commands of the group that the error is about; none for `svc` itself.
fn commands_of(tree: CommandTree, error: &clap::Error) -> Vec<String> {
    let Some((path, group)) = command_of(tree, error).filter(|(path, _)| path != "svc") else {
        return Vec::new();
    };
    group.get_subcommands().map(|child| format!("{path} {}", child.get_name())).collect()
}

/// Shells complete names of files only for arguments that are files.
fn with_hint(arg: Arg) -> Arg {
    let is_file = |name: &Str| matches!(name.as_str(), "FILE" | "DIRECTORY");
    match arg.get_value_names() {
        Some(names) if arg.get_action().takes_values() && !names.iter().any(is_file) => {
            let hint = arg.get_value_hint();
            arg.value_hint(if hint == ValueHint::Unknown { ValueHint::Other } else { hint })
        }
        _ => arg,
    }
}

/// Converts the error of a variable with an invalid value. An error of the command line is returned as it is.
pub(crate) fn variable_error(tree: CommandTree, mut error: clap::Error) -> Result<CliError, clap::Error> {
    let Some(variable) = invalid_variable(tree, &error) else { return Err(error) };
    let kind = error::ErrorKind::ConfigurationInvalid;
    if error.kind() == ErrorKind::InvalidUtf8 {
        return Ok(kind.with_message(format!("{variable} is not valid UTF-8")));
    }
    error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    Ok(kind.with_message(usage_error(tree, error).message))
}

/// Returns the variable of an invalid value.
fn invalid_variable(tree: CommandTree, error: &clap::Error) -> Option<String> {
    let root = (tree.command)();
    let mut variables = root.get_arguments().filter_map(|arg| Some((arg, arg.get_env()?)));
    let (_, variable) = if error.kind() == ErrorKind::InvalidUtf8 {
        // A path can have any bytes.
        variables
            .find(|&(arg, name)| arg.get_value_hint() != ValueHint::AnyPath && environment::is_not_utf8(name))
    } else {
        let (arg, value) = (error.get(ContextKind::InvalidArg)?, error.get(ContextKind::InvalidValue)?);
        let (shown, value) = (arg.to_string(), value.to_string());
        let is_set = |name: &OsStr| name.to_str().and_then(environment::text).as_deref() == Some(&*value);
        variables.find(|&(arg, name)| is_shown_as(arg, &shown) && is_set(name))
    }?;
    variable.to_str().map(str::to_owned)
}

/// Adds to an error how to correct the command line.
pub(crate) fn explained(tree: CommandTree, error: clap::Error) -> clap::Error {
    match error.kind() {
        ErrorKind::MissingRequiredArgument => with_descriptions(tree, error),
        _ => with_full_names(tree, error),
    }
}

/// Describes each missing argument as the help does. An alternative of several options has no description.
fn with_descriptions(tree: CommandTree, mut error: clap::Error) -> clap::Error {
    let Some((_, command)) = command_of(tree, &error) else { return error };
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return error };
    let help = |shown: &str| command.get_arguments().find(|arg| is_shown_as(arg, shown))?.get_help();
    let described = missing.iter().filter(|shown| help(shown).is_some());
    let width = described.map(String::len).max().unwrap_or_default();
    let line = |shown: &String| match help(shown) {
        // clap adds the indentation of the first line.
        Some(help) => {
            let line = format!("  {shown:width$}  {help}");
            wrapped(&line, MAX_ERROR_COLUMNS, width + 4).trim_start().to_owned()
        }
        None => wrapped_usage(shown),
    };
    let lines = missing.iter().map(line).collect();
    error.insert(ContextKind::InvalidArg, ContextValue::Strings(lines));
    error
}

/// Returns whether an error shows the argument in this form, such as `--file <FILE>` or `<SEQUENCE>...`.
fn is_shown_as(arg: &Arg, shown: &str) -> bool {
    if let Some(long) = arg.get_long() {
        return shown.split(' ').next().and_then(|name| name.strip_prefix("--")) == Some(long);
    }
    let name = shown.trim_end_matches("...").trim_matches(['<', '>']);
    arg.get_value_names().is_some_and(|names| names.iter().any(|own| own.as_str() == name))
}

/// Suggests the full names of a command that was entered without its group, instead of clap's similar names. After a group, only its
/// commands are suggested: those with the name in its groups, else all.
fn with_full_names(tree: CommandTree, mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let mut names = full_names(tree, word);
    if names.is_empty() {
        return error;
    }
    if let Some((group, _)) = command_of(tree, &error).filter(|(path, _)| path != "svc") {
        names.retain(|name| name.starts_with(&format!("{group} ")));
    }
    if names.is_empty() || names.len() > MAX_SUGGESTIONS {
        names = commands_of(tree, &error);
    }
    if names.is_empty() {
        return error;
    }
    error.remove(ContextKind::SuggestedSubcommand);
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let tip = format!("did you mean {}?", names.join(" or "));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Converts a clap error. Omits the usage line.
pub(crate) fn usage_error(tree: CommandTree, error: clap::Error) -> CliError {
    let is_unknown_command = error.kind() == ErrorKind::InvalidSubcommand;
    let text = explained(tree, error).render().to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or_default();
    let message = message.split("\n\nFor more information").next().unwrap_or_default();
    let usage = error::ErrorKind::Usage.with_message(message.trim().trim_start_matches("error: "));
    if is_unknown_command {
        return usage.with_remediation("List the commands: `svc catalog show --summary`.");
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_usage_is_broken_between_arguments_and_alternatives() {
        assert_eq!(wrapped_usage("svc users get [OPTIONS] <USER_ID>"), "svc users get [OPTIONS] <USER_ID>");
        let usage = "svc tenants update [OPTIONS] <--display-name <NAME>|--events-per-second <COUNT>|--x <COUNT>> <TENANT_ID>";
        assert_eq!(
            wrapped_usage(usage),
            "svc tenants update [OPTIONS] <--display-name <NAME>|\n           --events-per-second <COUNT>|--x <COUNT>> <TENANT_ID>"
        );
    }

    #[test]
    fn long_examples_are_broken_before_options() {
        assert_eq!(with_continuations("svc users list --limit 7"), "svc users list --limit 7");
        let line = "svc tenants create acme --display-name \"Acme Ltd\" --admin-email ada@acme.example --delivery response";
        assert_eq!(
            with_continuations(line),
            "svc tenants create acme --display-name \"Acme Ltd\" \\\n      --admin-email ada@acme.example --delivery response"
        );
    }
}
