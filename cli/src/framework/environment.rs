//! Environment variables. An empty variable counts as unset.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Command;
use clap::builder::Resettable;

use contract::{Secret, TraceContext};

use crate::credential::{Bearer, CredentialSource};
use crate::error::{ErrorKind, Result};

/// Session token or another bearer credential, for automation.
pub(crate) const TOKEN: &str = "SVC_TOKEN";
/// API key, for automation.
pub(crate) const API_KEY: &str = "SVC_API_KEY";
/// Token of the platform administrator.
pub(crate) const PLATFORM_TOKEN: &str = "SVC_PLATFORM_TOKEN";

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

/// Credential in the variable, or in the file that `<name>_FILE` names.
pub(crate) fn credential(name: &'static str) -> Result<Option<Bearer>> {
    if let Some(raw) = text(name) {
        let source = CredentialSource::Variable { name, file: None };
        return Ok(Some(Bearer { secret: Secret::new(raw.trim()), source }));
    }
    let file_variable = format!("{name}_FILE");
    let Some(path) = text(&file_variable).map(PathBuf::from) else {
        return Ok(None);
    };
    let invalid = |reason: String| {
        let message = format!("{file_variable} ({}): {reason}", path.display());
        ErrorKind::ConfigurationInvalid.with_message(message)
    };
    let raw = std::fs::read_to_string(&path).map_err(|error| invalid(error.to_string()))?;
    match raw.trim() {
        "" => Err(invalid("the file is empty".to_owned())),
        secret => {
            let source = CredentialSource::Variable { name, file: Some(path.clone()) };
            Ok(Some(Bearer { secret: Secret::new(secret), source }))
        }
    }
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
