//! The manual of the client in several forms: `svc help`, `svc completion` and `svc man-pages`.

use std::collections::BTreeSet;
use std::fs::{File, create_dir_all};
use std::io::{self, Write};
use std::iter::once;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use schemars::JsonSchema;
use serde::Serialize;

use super::TREE;
use super::version::VERSION;
use crate::framework::catalog::{
    CommandDescriptor, CommandTree, Errors, Examples, Names, Topic, built, descriptor, leaves, nodes,
};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::help;
use crate::framework::output::{CommandOutput, Table};

/// Print the help of a command or topic.
///
/// `svc help users disable` prints the same text as `svc users disable --help`.
#[derive(Args)]
pub(crate) struct Help {
    /// Name of a command or group, or the topic `environment` or `exit-codes` [default: all commands and the global options].
    command: Vec<String>,
}

/// The help of a command or topic.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HelpText {
    /// Help text.
    help: String,
    /// Indentation of the parts of a line that is broken on a terminal. clap breaks the lines of other texts.
    #[serde(skip)]
    indent: Option<usize>,
}

impl HelpText {
    /// Short help of the group that was entered without a subcommand.
    pub(crate) fn from_group(error: &clap::Error) -> Self {
        let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
            return error.render().to_string().into();
        };
        let words: Vec<_> = name.split(' ').skip(1).map(str::to_owned).collect();
        help::text(TREE, &words, "-h").unwrap_or_else(|error| error.render().to_string()).into()
    }
}

impl From<String> for HelpText {
    fn from(help: String) -> Self {
        Self { help, indent: None }
    }
}

impl CommandOutput for HelpText {
    fn table(&self) -> Table {
        match self.indent {
            Some(indent) => Table::paragraphs(&self.help, indent),
            None => Table::text(&self.help),
        }
    }
}

impl Command for Help {
    type Output = HelpText;

    const EXAMPLES: Examples = &[
        ("List the commands and the global options", "svc help"),
        ("Print the help of a command", "svc help events send"),
        ("List the environment variables", "svc help environment"),
        ("List the exit codes", "svc help exit-codes"),
    ];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str =
        "Works offline. For programs, `catalog show` has the same content and more.";
    const SEE_ALSO: Names = &["catalog show", "man-pages"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        if let [word] = self.command.as_slice()
            && let Some(topic) = Topic::ALL.iter().find(|topic| topic.name == word)
        {
            let (help, indent) = topic.text(context.tree());
            return Ok(HelpText { help, indent: Some(indent) });
        }
        let help = help::text(context.tree(), &self.command, "--help")
            .map_err(|error| help::usage_error(context.tree(), error))?;
        Ok(help.into())
    }
}

/// How to install a completion script.
const COMPLETION: &str = "\
Print a shell completion script.

To install it for your user, write it to a file that the shell reads, and start a
new shell. The directory must exist.

bash, with the package bash-completion:
  svc completion bash > ~/.local/share/bash-completion/completions/svc

zsh, if $fpath contains ~/.zfunc before compinit runs:
  svc completion zsh > ~/.zfunc/_svc

fish:
  svc completion fish > ~/.config/fish/completions/svc.fish

PowerShell:
  svc completion powershell >> $PROFILE

elvish:
  svc completion elvish >> ~/.config/elvish/rc.elv";

/// Print a shell completion script
#[derive(Args)]
#[command(long_about = COMPLETION)]
pub(crate) struct Completion {
    /// Shell.
    shell: Shell,
}

/// A completion script.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompletionScript {
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
    type Output = CompletionScript;

    const EXAMPLES: Examples = &[
        ("Print the completion script for bash", "svc completion bash"),
        ("Print the completion script for zsh", "svc completion zsh"),
    ];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. Only useful in an interactive shell.";
    const SEE_ALSO: Names = &["man-pages", "catalog show"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut with_names((context.tree().command)()), "svc", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        Ok(CompletionScript { shell: self.shell.to_string(), script })
    }
}

/// Returns the client with possible values for the arguments that name a command: the words of all names and, for `svc help`, the topics.
fn with_names(client: clap::Command) -> clap::Command {
    let names: Vec<String> = leaves(&client).into_iter().map(|(name, _)| name).collect();
    let words: BTreeSet<&str> = names.iter().flat_map(|name| name.split(' ')).collect();
    // clap requires values that live until the end of the process.
    let words: Vec<&'static str> = words.into_iter().map(|word| &*word.to_owned().leak()).collect();
    let of_help: Vec<_> = words.iter().copied().chain(Topic::ALL.iter().map(|topic| topic.name)).collect();
    let with_values = |command: clap::Command, values: Vec<&'static str>| {
        command.mut_arg("command", |arg| arg.value_parser(PossibleValuesParser::new(values)))
    };
    client
        .mut_subcommand("help", |help| with_values(help, of_help))
        .mut_subcommand("catalog", |catalog| catalog.mut_subcommand("show", |show| with_values(show, words)))
}

/// Write the manual pages of all commands to a directory.
///
/// Creates the directory if necessary, and overwrites older pages. In `~/.local/share/man/man1`, `man svc` finds them.
#[derive(Args)]
pub(crate) struct ManPages {
    /// Directory.
    directory: PathBuf,
}

/// Manual pages that were written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WrittenPages {
    /// Paths of the pages.
    files: Vec<PathBuf>,
}

impl CommandOutput for WrittenPages {
    fn table(&self) -> Table {
        Table::message(&format!("{} manual pages written.", self.files.len()))
    }
}

impl Command for ManPages {
    type Output = WrittenPages;

    const ERRORS: Errors = &[ErrorKind::OutputFailed];
    const EXAMPLES: Examples =
        &[("Install the manual pages for your user", "svc man-pages ~/.local/share/man/man1")];
    const AGENT_NOTES: &'static str = "Works offline. Packages of the client run it to install the pages.";
    const SEE_ALSO: Names = &["help", "completion"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let failed = |error: io::Error| CliError::write_failed(&error, &self.directory.display().to_string());
        create_dir_all(&self.directory).map_err(failed)?;
        let root = built(context.tree());
        let pages = once((String::new(), &root)).chain(nodes(&root));
        let pages = pages.map(|(name, command)| write_page(&name, command, context.tree(), &self.directory));
        Ok(WrittenPages { files: pages.collect::<io::Result<_>>().map_err(failed)? })
    }
}

/// Writes the page of a command or group. Returns its path.
fn write_page(
    name: &str,
    command: &clap::Command,
    tree: CommandTree,
    directory: &Path,
) -> io::Result<PathBuf> {
    let page = Man::new(command.clone()).source(format!("svc {VERSION}"));
    let path = directory.join(page.get_filename());
    let mut file = File::create(&path)?;
    page.render(&mut file)?;
    let examples = help::examples(tree).remove(name).into_iter().map(|examples| {
        let lines: Vec<_> = examples.into_iter().map(help::example_lines).collect();
        ("EXAMPLES", lines.join("\n"))
    });
    let topics = Topic::ALL.iter().filter(|_| name.is_empty());
    let of_client = topics.map(|topic| (topic.heading, topic.text(tree).0));
    let of_command = descriptor(tree, name, true);
    let of_command = of_command.iter().flat_map(CommandDescriptor::manual_sections);
    for (heading, text) in examples.chain(of_client).chain(of_command) {
        let mut section = Roff::new();
        section.control("SH", [heading]).control("nf", []);
        for line in text.lines() {
            section.text([roman(line)]);
        }
        section.control("fi", []).to_writer(&mut file)?;
    }
    file.flush()?;
    Ok(path)
}
