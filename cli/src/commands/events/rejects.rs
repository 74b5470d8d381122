//! What was not accepted, and why: counted, shown in part, and recorded where it was asked for.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use contract::ProblemKind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use transport::{TransportError, TransportErrorKind};

use crate::error::{Fault, Result};
use crate::output::Output;

/// Rejects that are told on standard error; the file has them all.
const SHOWN: u64 = 5;
/// Rejects that the summary holds: enough to see what is wrong, without a list that grows with the input.
const KEPT: usize = 20;

/// A line of the file of rejects.
#[derive(Debug, Serialize)]
pub(super) struct Reject<'a> {
    /// Its line in the input, or its place in the list, from 1.
    pub(super) line: u64,
    /// The id that it has, or was given.
    pub(super) event_id: Option<&'a str>,
    /// The API's code, or that of a failure on the way.
    pub(super) code: &'a str,
    /// What is wrong.
    pub(super) message: &'a str,
    /// Whether the same event can be accepted later, unchanged.
    pub(super) retryable: bool,
    /// The event as it was sent, with its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<&'a RawValue>,
    /// The text that is no event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
}

impl<'a> Reject<'a> {
    /// A reject of which no more is known.
    pub(super) fn of_line(line: u64, code: &'a str, message: &'a str) -> Self {
        Self { line, event_id: None, code, message, retryable: false, event: None, text: None }
    }
}

/// A reject as the summary holds it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RejectedLine {
    /// Its line in the input, or its place in the list, from 1.
    line: u64,
    /// The id that it has, or was given; null when it is no event.
    event_id: Option<String>,
    /// The API's code, or that of a failure on the way.
    code: String,
    /// What is wrong.
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

/// Takes rejects in.
pub(super) struct Rejects {
    out: Output,
    file: Option<(PathBuf, BufWriter<File>)>,
    count: u64,
    first: Vec<RejectedLine>,
}

impl Rejects {
    /// Begins an empty file, if one is asked for. It must not be the input, which would be lost.
    pub(super) fn new(path: Option<&Path>, input: &Path, out: &Output) -> Result<Self> {
        let file = path.map(|path| create(path, input)).transpose()?;
        Ok(Self { out: out.clone(), file, count: 0, first: Vec::new() })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The first of them, in the order in which they were found.
    pub(super) fn take_first(&mut self) -> Vec<RejectedLine> {
        std::mem::take(&mut self.first)
    }

    /// Takes one in.
    pub(super) fn add(&mut self, reject: &Reject<'_>) -> Result<()> {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(reject.into());
        }
        if self.count <= SHOWN {
            self.out.notice(&format!("line {}: {}: {}", reject.line, reject.code, reject.message));
        } else if self.count == SHOWN + 1 {
            let rest = if self.file.is_some() {
                "the rest is in the file of rejects"
            } else {
                "--rejects FILE records all"
            };
            self.out.notice(&format!("more rejects; {rest}"));
        }
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        let written = serde_json::to_writer(&mut *file, reject)
            .map_err(Into::into)
            .and_then(|()| file.write_all(b"\n"));
        written.map_err(|error| Fault::writing(&error, &path.display().to_string()))
    }

    /// Makes sure that what was taken in is in the file.
    pub(super) fn finish(&mut self) -> Result<()> {
        match &mut self.file {
            Some((path, file)) => {
                file.flush().map_err(|error| Fault::writing(&error, &path.display().to_string()))
            }
            None => Ok(()),
        }
    }
}

fn create(path: &Path, input: &Path) -> Result<(PathBuf, BufWriter<File>)> {
    let same = |a: &Path, b: &Path| Some(a.canonicalize().ok()? == b.canonicalize().ok()?);
    if same(path, input) == Some(true) {
        return Err(Fault::Usage.because("--rejects names the input itself, which would be overwritten"));
    }
    let file = File::create(path).map_err(|error| Fault::writing(&error, &path.display().to_string()))?;
    Ok((path.to_owned(), BufWriter::new(file)))
}

/// What scripts key on: the service's code, else that of the failure on the way.
pub(super) fn code_of(error: &TransportError) -> &str {
    match (&error.code, error.kind) {
        (Some(code), _) => code,
        (None, TransportErrorKind::InvalidEvent) => ProblemKind::ValidationFailed.code(),
        (None, _) => fault_of(error).code(),
    }
}

/// The failure on the way, where the service gave no problem.
pub(super) fn fault_of(error: &TransportError) -> Fault {
    match error.kind {
        TransportErrorKind::Configuration => Fault::ConfigurationInvalid,
        TransportErrorKind::Connection => Fault::Unreachable,
        TransportErrorKind::Timeout => Fault::TimedOut,
        TransportErrorKind::InvalidEvent => Fault::InputInvalid,
        _ => Fault::UnexpectedAnswer,
    }
}
