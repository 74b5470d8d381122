//! Rejected events: counted, printed in part, and recorded in the file of `--rejects`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use contract::ProblemKind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use transport::{TransportError, TransportErrorKind};

use crate::error::{CliError, ErrorKind, Result};
use crate::output::Output;

/// Maximum number of rejects printed to standard error.
const MAX_PRINTED: u64 = 5;
/// Maximum number of rejects in the summary, which must not grow with the input.
const MAX_IN_SUMMARY: usize = 20;

/// A line of the rejects file.
#[derive(Debug, Serialize)]
pub(super) struct Reject<'a> {
    /// Line in the input, or position in the list, from 1.
    pub(super) line: u64,
    /// Id that the event was sent with.
    pub(super) event_id: Option<&'a str>,
    /// Error code of the API or of the client.
    pub(super) code: &'a str,
    pub(super) message: &'a str,
    /// Whether the same event can be accepted later, unchanged.
    pub(super) retryable: bool,
    /// Event as it was sent, with its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<&'a RawValue>,
    /// Text that is not an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
}

impl<'a> Reject<'a> {
    pub(super) fn new(line: u64, code: &'a str, message: &'a str) -> Self {
        Self { line, event_id: None, code, message, retryable: false, event: None, text: None }
    }
}

/// A reject in the summary.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RejectedLine {
    /// Line in the input, or position in the list, from 1.
    line: u64,
    /// Id that the event was sent with; null if the line is not an event.
    event_id: Option<String>,
    /// Error code of the API or of the client.
    code: String,
    /// Error message.
    message: String,
}

impl From<&Reject<'_>> for RejectedLine {
    fn from(reject: &Reject<'_>) -> Self {
        Self {
            line: reject.line,
            event_id: reject.event_id.map(str::to_owned),
            code: reject.code.to_owned(),
            message: reject.message.to_owned(),
        }
    }
}

/// Record of all rejects of a delivery.
pub(super) struct RejectLog {
    out: Output,
    file: Option<(PathBuf, BufWriter<File>)>,
    count: u64,
    first: Vec<RejectedLine>,
}

impl RejectLog {
    /// Creates or truncates the file, if one is requested. It must not be the input.
    pub(super) fn create(path: Option<&Path>, input: &Path, out: &Output) -> Result<Self> {
        let file = path.map(|path| create_file(path, input)).transpose()?;
        Ok(Self { out: out.clone(), file, count: 0, first: Vec::new() })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Takes the first rejects, in the order in which they occurred.
    pub(super) fn take_first(&mut self) -> Vec<RejectedLine> {
        std::mem::take(&mut self.first)
    }

    pub(super) fn add(&mut self, reject: &Reject<'_>) -> Result<()> {
        self.count += 1;
        if self.first.len() < MAX_IN_SUMMARY {
            self.first.push(reject.into());
        }
        if self.count <= MAX_PRINTED {
            self.out.notice(&format!("line {}: {}: {}", reject.line, reject.code, reject.message));
        } else if self.count == MAX_PRINTED + 1 {
            let rest = if self.file.is_some() {
                "see the rejects file"
            } else {
                "pass --rejects FILE to record all"
            };
            self.out.notice(&format!("further rejects are not printed; {rest}"));
        }
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        let written = serde_json::to_writer(&mut *file, reject)
            .map_err(Into::into)
            .and_then(|()| file.write_all(b"\n"));
        written.map_err(|error| CliError::write_failed(&error, &path.display().to_string()))
    }

    /// Flushes the file.
    pub(super) fn finish(&mut self) -> Result<()> {
        match &mut self.file {
            Some((path, file)) => {
                file.flush().map_err(|error| CliError::write_failed(&error, &path.display().to_string()))
            }
            None => Ok(()),
        }
    }
}

fn create_file(path: &Path, input: &Path) -> Result<(PathBuf, BufWriter<File>)> {
    let same = |a: &Path, b: &Path| Some(a.canonicalize().ok()? == b.canonicalize().ok()?);
    if same(path, input) == Some(true) {
        return Err(ErrorKind::Usage.with_message("--rejects must not be the input file"));
    }
    let file =
        File::create(path).map_err(|error| CliError::write_failed(&error, &path.display().to_string()))?;
    Ok((path.to_owned(), BufWriter::new(file)))
}

/// Error code of the API, or of the client if the API did not respond.
pub(super) fn error_code(error: &TransportError) -> &str {
    match (&error.code, error.kind) {
        (Some(code), _) => code,
        (None, TransportErrorKind::InvalidEvent) => ProblemKind::ValidationFailed.code(),
        (None, _) => local_kind(error).code(),
    }
}

/// Message of the error, without the API's remedy, which is written for HTTP clients.
pub(super) fn error_message(error: &TransportError) -> &str {
    let remedy = error.code.as_deref().and_then(ProblemKind::from_code).map(ProblemKind::remedy);
    let message = remedy.and_then(|remedy| error.message.strip_suffix(remedy)?.strip_suffix(": "));
    message.unwrap_or(&error.message)
}

/// Kind of an error without a problem of the API.
pub(super) fn local_kind(error: &TransportError) -> ErrorKind {
    match error.kind {
        TransportErrorKind::Configuration => ErrorKind::ConfigurationInvalid,
        TransportErrorKind::Connection => ErrorKind::Unreachable,
        TransportErrorKind::Timeout => ErrorKind::TimedOut,
        TransportErrorKind::InvalidEvent => ErrorKind::InputInvalid,
        _ => ErrorKind::UnexpectedResponse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_the_remedy_of_the_api_from_a_message() {
        let kind = ProblemKind::CredentialInvalid;
        let error = |message: String| TransportError {
            code: Some(kind.code().to_owned()),
            ..TransportError::new(TransportErrorKind::Status, message)
        };
        let with_remedy = error(format!("{}: {}", kind.title(), kind.remedy()));
        assert_eq!(error_message(&with_remedy), kind.title());
        assert_eq!(error_message(&error("Title: detail".to_owned())), "Title: detail");
    }
}
