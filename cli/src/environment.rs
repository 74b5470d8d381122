//! The one home of environment variables that are no options. An empty variable counts as unset.

use std::path::PathBuf;

use contract::{Secret, TraceContext};

use crate::error::{Fault, Result};

/// A session token or any other bearer credential, for automation.
pub(crate) const TOKEN: &str = "SVC_TOKEN";
/// An API key, for automation.
pub(crate) const API_KEY: &str = "SVC_API_KEY";
/// The operator's token.
pub(crate) const PLATFORM_TOKEN: &str = "SVC_PLATFORM_TOKEN";

/// Whether automation has announced itself, so that nobody can be asked.
pub(crate) fn is_automation() -> bool {
    text("CI").is_some()
}

/// Whether colours are unwanted (<https://no-color.org>).
pub(crate) fn refuses_color() -> bool {
    text("NO_COLOR").is_some()
}

/// The place in a trace that the program which runs this one is at (W3C Trace Context, as OpenTelemetry names the variable).
pub(crate) fn trace() -> Option<TraceContext> {
    TraceContext::parse(text("TRACEPARENT")?.trim())
}

/// The secret in the variable, or in the file that `<name>_FILE` names.
pub(crate) fn secret(name: &str) -> Result<Option<Secret>> {
    if let Some(raw) = text(name) {
        return Ok(Some(Secret::new(raw.trim())));
    }
    let by_file = format!("{name}_FILE");
    let Some(path) = text(&by_file).map(PathBuf::from) else {
        return Ok(None);
    };
    let unusable =
        |why: String| Fault::ConfigurationInvalid.because(format!("{by_file} ({}): {why}", path.display()));
    let raw = std::fs::read_to_string(&path).map_err(|error| unusable(error.to_string()))?;
    match raw.trim() {
        "" => Err(unusable("the file is empty".to_owned())),
        secret => Ok(Some(Secret::new(secret))),
    }
}

/// A variable that is set to something.
#[expect(clippy::disallowed_methods, reason = "this is the client's one home of environment variables")]
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
