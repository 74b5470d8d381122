//! Entry point: parses the command line, runs the command, and maps errors, signals and panics to exit statuses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};

use crate::arguments::{Color, value_before_parsing};
use crate::commands::Node;
use crate::commands::{CommandLine, HelpText, TREE};
use crate::context::Context;
use crate::environment;
use crate::error::{CliError, ErrorKind, Exit, Result};
use crate::help;
use crate::output::Output;

/// Runs the client with the arguments of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let format = value_before_parsing(&arguments, "--output", Some('o'), environment::text("SVC_OUTPUT"));
    let color: Color = value_before_parsing(&arguments, "--color", None, None);
    let parse = |command: clap::Command| {
        let command = environment::without_empty(command).color(color.into());
        let matches = command.try_get_matches_from(std::env::args_os());
        matches.and_then(|matches| {
            let mut line = CommandLine::from_arg_matches(&matches)?;
            line.globals.record_given(&matches);
            Ok(line)
        })
    };
    let exit = match parse((TREE.command)()) {
        Ok(line) => run_command(line),
        Err(error) => {
            let out = Output::before_parsing(format, color);
            let error = match error.kind() {
                ClapErrorKind::DisplayVersion => error,
                // Help and usage errors need the complete texts, which take longer to build.
                _ => parse(help::command(TREE)).err().unwrap_or(error),
            };
            report_parse_error(error, &out)
        }
    };
    exit.into()
}

fn run_command(line: CommandLine) -> Exit {
    let context = Context::new(line.globals, TREE);
    context.signals().handle();
    let exit = exit_of(catch_panic(|| block_on_command(line.command, &context)), context.out());
    context.signals().release();
    exit
}

/// Prints the error of a command, if any.
fn exit_of(result: Result<()>, out: &Output) -> Exit {
    match result {
        Ok(()) => Exit::Success,
        Err(error) => {
            match error.exit {
                // The person or program that closed the pipe or sent the signal expects no error.
                Exit::BrokenPipe => {}
                exit if exit.signal().is_some() => {}
                // The person decided it.
                _ if error.code == ErrorKind::Declined.code() && !out.is_json() => out.notice(&error.message),
                _ => out.error(&error),
            }
            error.exit
        }
    }
}

fn block_on_command(command: impl Node, context: &Context) -> Result<()> {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
            |error| ErrorKind::Defect.with_message(format!("failed to start the async runtime: {error}")),
        )?;
    let result = runtime.block_on(command.run(context));
    // A thread that is blocked on standard input must not delay the exit.
    runtime.shutdown_background();
    result
}

/// Converts a panic to an error with the location and message of the panic.
fn catch_panic(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let message: Arc<Mutex<String>> = Arc::default();
    let hook_message = Arc::clone(&message);
    std::panic::set_hook(Box::new(move |panic| {
        *hook_message.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = message.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(ErrorKind::Defect.with_message(message))
    })
}

/// Suggests the full names of a command that was entered without its group, instead of clap's similar names.
fn with_full_names(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let names: Vec<_> = help::full_names(TREE, word).iter().map(|name| format!("`{name}`")).collect();
    if !names.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = format!("did you mean {}?", names.join(" or "));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Prints help and version as data, and everything else as a usage error.
fn report_parse_error(error: clap::Error, out: &Output) -> Exit {
    let printed = match error.kind() {
        ClapErrorKind::DisplayHelp | ClapErrorKind::DisplayVersion => {
            error.print().map_err(|error| CliError::write_failed(&error, "standard output"))
        }
        // A group without a subcommand.
        ClapErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ClapErrorKind::MissingSubcommand => {
            out.print(&HelpText::of_group(&error))
        }
        _ if out.is_json() => Err(usage_error(error)),
        _ => {
            // A failure to write to standard error cannot be reported anywhere else.
            let _ = with_full_names(error).print();
            return Exit::Usage;
        }
    };
    match printed {
        Ok(()) => Exit::Success,
        Err(error) => {
            if error.exit != Exit::BrokenPipe {
                out.error(&error);
            }
            error.exit
        }
    }
}

/// Converts a clap error. Omits the usage line.
pub(crate) fn usage_error(error: clap::Error) -> CliError {
    let is_unknown_command = error.kind() == ClapErrorKind::InvalidSubcommand;
    let text = with_full_names(error).render().to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or_default();
    let message = message.split("\n\nFor more information").next().unwrap_or_default();
    let usage = ErrorKind::Usage.with_message(message.trim().trim_start_matches("error: "));
    if is_unknown_command {
        return usage.with_remediation("List the commands: `svc catalog show --summary`.");
    }
    usage
}
