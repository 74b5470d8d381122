//! Environment variables. An empty variable counts as unset.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};

use clap::Command;
use clap::builder::Resettable;
use contract::TraceContext;

use crate::framework::error::{ErrorKind, Result};

/// Returns whether the process runs in continuous integration, where prompting is not possible.
pub(crate) fn is_ci() -> bool {
    text("CI").is_some()
}

/// Trace context of the calling program (W3C Trace Context, variable as named by OpenTelemetry).
pub(crate) fn trace() -> Option<TraceContext> {
    TraceContext::parse(text("TRACEPARENT")?.trim())
}

#[expect(clippy::disallowed_methods, reason = "the client reads environment variables only here")]
fn raw(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name)
}

/// Value of a variable, if it is not empty.
pub(crate) fn text(name: &str) -> Option<String> {
    raw(name)?.into_string().ok().filter(|value| !value.is_empty())
}

/// Value of a variable with a credential, if it is not empty.
///
/// # Errors
/// The value is not UTF-8. Such a variable must not count as unset: the command would use another credential.
pub(crate) fn credential(name: &str) -> Result<Option<String>> {
    let value = raw(name).filter(|value| !value.is_empty()).map(OsString::into_string).transpose();
    value.map_err(|_| ErrorKind::ConfigurationInvalid.with_message(format!("{name} is not valid UTF-8")))
}

/// Returns whether a variable is set to bytes that are no text.
pub(crate) fn is_not_utf8(name: &OsStr) -> bool {
    raw(name).is_some_and(|value| value.to_str().is_none())
}

/// Returns whether standard error is a terminal that interprets escape sequences.
pub(crate) fn has_escape_sequences() -> bool {
    io::stderr().is_terminal() && text("TERM").is_some_and(|name| name != "dumb")
}

/// Whether messages have colors by default: <https://no-color.org> and CLICOLOR, as in the texts of clap.
pub(crate) fn is_colored() -> bool {
    let is_forced = text("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    let is_off =
        text("NO_COLOR").is_some() || (!is_forced && text("CLICOLOR").is_some_and(|value| value == "0"));
    !is_off && (is_forced || has_escape_sequences())
}

/// The command without the variables of its options that are empty. clap would parse them.
pub(crate) fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_env() {
        Some(name) if raw(name).is_some_and(|value| value.is_empty()) => arg.env(Resettable::Reset),
        _ => arg,
    });
    command.mut_subcommands(without_empty)
}
