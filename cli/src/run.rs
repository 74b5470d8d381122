//! Entry point: parses the command line, runs the command, and maps errors, signals and panics to exit statuses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind as ClapErrorKind;
use clap::{ColorChoice, FromArgMatches};
use parking_lot::Mutex;

use crate::commands::{CommandLine, HelpText, TREE};
use crate::framework::arguments::value_before_parsing;
use crate::framework::command::Node;
use crate::framework::context::Context;
use crate::framework::environment;
use crate::framework::error::{CliError, ErrorKind, Exit, Result};
use crate::framework::help;
use crate::framework::output::Output;
use crate::framework::terminal;

/// Runs the client with the arguments of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let format = value_before_parsing(&arguments, "--output", Some('o'), environment::text("SVC_OUTPUT"));
    let color: ColorChoice = value_before_parsing(&arguments, "--color", None, None);
    let parse = |command: clap::Command| {
        let command = environment::without_empty(command).color(color);
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
    terminal::discard_rest();
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
        *hook_message.lock() = panic.to_string();
    }));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = message.lock().clone();
        Err(ErrorKind::Defect.with_message(message))
    })
}

/// Prints help and version as data, and everything else as a usage error.
fn report_parse_error(error: clap::Error, out: &Output) -> Exit {
    let printed = match error.kind() {
        ClapErrorKind::DisplayHelp | ClapErrorKind::DisplayVersion => {
            error.print().map_err(|error| CliError::write_failed(&error, "standard output"))
        }
        // A group without a subcommand.
        ClapErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ClapErrorKind::MissingSubcommand => {
            out.print(&HelpText::from_group(&error))
        }
        _ => match help::variable_error(TREE, error) {
            Ok(error) => Err(error),
            Err(error) if out.is_json() => Err(help::usage_error(TREE, error)),
            Err(error) => {
                // A failure to write to standard error cannot be reported anywhere else.
                let _ = help::explained(TREE, error).print();
                return Exit::Usage;
            }
        },
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
