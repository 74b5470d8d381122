//! Environment variables. An empty variable counts as unset.

use std::ffi::OsStr;

use clap::Command;
use clap::builder::Resettable;
use contract::TraceContext;

/// Returns whether the process runs in continuous integration, where prompting is not possible.
pub(crate) fn is_ci() -> bool {
    text("CI").is_some()
}

/// Returns whether colors are disabled (<https://no-color.org>).
pub(crate) fn is_color_disabled() -> bool {
    text("NO_COLOR").is_some()
}

/// Trace context of the calling program (W3C Trace Context, variable as named by OpenTelemetry).
pub(crate) fn trace() -> Option<TraceContext> {
    TraceContext::parse(text("TRACEPARENT")?.trim())
}

/// Value of a variable, if it is not empty.
#[expect(clippy::disallowed_methods, reason = "the client reads environment variables only here")]
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The command without the variables of its options that are empty. clap would parse them.
pub(crate) fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_env() {
        Some(name) if is_empty(name) => arg.env(Resettable::Reset),
        _ => arg,
    });
    command.mut_subcommands(without_empty)
}

#[expect(clippy::disallowed_methods, reason = "the client reads environment variables only here")]
fn is_empty(name: &OsStr) -> bool {
    std::env::var_os(name).is_some_and(|value| value.is_empty())
}
