//! From the words of the command line to the exit status: parse, act, report; signals and defects on the way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::{Color, CommandLine, before_parsing};
use crate::commands::Node;
use crate::context::Context;
use crate::environment;
use crate::error::{Exit, Fault, Result};
use crate::help;
use crate::output::Output;

/// Runs the client with the arguments of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let format = before_parsing(&arguments, "--output", environment::text("SVC_OUTPUT"));
    let color: Color = before_parsing(&arguments, "--color", None);
    let early = Output::before_parsing(format, color);
    let line = match help::command().color(color.into()).try_get_matches_from(std::env::args_os()) {
        Ok(matches) => CommandLine::from_arg_matches(&matches),
        Err(error) => Err(error),
    };
    let exit = match line {
        Ok(line) => perform(line),
        Err(error) => refuse(&with_misplaced(error), &early),
    };
    exit.into()
}

/// Acts on an understood command line.
fn perform(line: CommandLine) -> Exit {
    let context = Context::new(line.globals);
    let out = context.out().clone();
    match catching_defects(|| act(line.command, &context)) {
        Ok(()) => Exit::Done,
        Err(error) => {
            // Whoever closed the pipe has seen enough.
            if error.exit != Exit::BrokenPipe {
                out.error(&error);
            }
            error.exit
        }
    }
}

fn act(command: impl Node, context: &Context) -> Result<()> {
    // An error means that it is installed already, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Fault::Defect.because(format!("no runtime: {error}")))?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            signal = stopped() => Err(signal.bare()),
            outcome = command.run(context) => outcome,
        }
    });
    // A thread that still waits for standard input must not hold the process.
    runtime.shutdown_background();
    outcome
}

/// Ends when the process is told to stop.
#[cfg(unix)]
async fn stopped() -> Fault {
    use tokio::signal::unix::{SignalKind, signal};

    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => tokio::select! {
            _ = interrupt.recv() => Fault::Interrupted,
            _ = terminate.recv() => Fault::Terminated,
        },
        // Without handlers, the signals end the process by themselves.
        _ => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn stopped() -> Fault {
    match tokio::signal::ctrl_c().await {
        Ok(()) => Fault::Interrupted,
        Err(_) => std::future::pending().await,
    }
}

/// Turns a panic into the error that says so.
fn catching_defects(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let place: Arc<Mutex<String>> = Arc::default();
    let seen = Arc::clone(&place);
    std::panic::set_hook(Box::new(move |panic| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Fault::Defect.because(place.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    })
}

/// A command that was typed without its noun is named in full, instead of what clap finds similar.
fn with_misplaced(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let meant: Vec<_> = help::named_elsewhere(word).iter().map(|name| format!("`{name}`")).collect();
    if !meant.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = format!("did you mean {}?", meant.join(" or "));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Answers a command line that is not to be acted on: help and version are data, the rest is an error.
fn refuse(error: &clap::Error, out: &Output) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match error.print() {
            Ok(()) => Exit::Done,
            Err(failure) => Fault::writing(&failure, "standard output").exit,
        };
    }
    if out.is_structured() {
        out.error(&Fault::Usage.because(complaint(error)));
    } else {
        // Where standard error is gone, there is nobody left to tell.
        let _ = error.print();
    }
    Exit::Usage
}

/// What clap complains of, without the usage that follows it.
fn complaint(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is needed".to_owned();
    }
    let text = error.render().to_string();
    let complaint = text.split("\n\nUsage:").next().unwrap_or_default();
    complaint.trim().trim_start_matches("error: ").to_owned()
}
