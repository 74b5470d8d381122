//! Events and lines that were not accepted: kept in a file in the order of the input, and in part printed.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use contract::ProblemKind;
use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use transport::{OutgoingEvent, TransportError, TransportErrorKind};

use super::item::{InvalidJson, Place, described};
use crate::framework::error::{CliError, ErrorKind, Exit, Result};
use crate::framework::input_file::InputFile;
use crate::framework::output::Output;

/// Maximum number of rejects printed to standard error.
const MAX_PRINTED: u64 = 5;
/// Maximum number of rejects in the summary, which must not grow with the input.
const MAX_IN_SUMMARY: usize = 20;
/// Every rejects file ends like this.
const SUFFIX: &str = "rejects.ndjson";
/// Number of names that are tried for a file without --rejects.
const MAX_NAMES: u32 = 1000;

/// A line of the rejects file. `svc events send` accepts it in place of an event.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reject {
    /// Line of the input on which the event starts, from 1.
    pub(super) line: u64,
    /// Number of the event in the input, from 1; only if not each line is an event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) item: Option<u64>,
    /// Id of the event; null if it has none, or the text is not an event.
    pub(super) event_id: Option<String>,
    /// Error code of the API or of the client.
    pub(super) code: String,
    /// Error message.
    pub(super) message: String,
    /// Whether the same event can be accepted later, unchanged.
    pub(super) retryable: bool,
    /// Event as it was sent, with its id; or as it was read, if it is too long to be sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub(super) event: Option<Box<RawValue>>,
    /// Text that is not an event; it is sent if it was corrected.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) text: Option<String>,
    /// Bytes that are not UTF-8, in place of `text`, as Base64 (RFC 4648, section 4).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) bytes: Option<String>,
    /// Whether `text` or `bytes` is only the start of a longer text.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(super) truncated: bool,
}

impl Reject {
    /// Reject without an event.
    pub(super) fn from_place(place: Place, code: &str, message: &str) -> Self {
        Self {
            line: place.line,
            item: place.item(),
            event_id: None,
            code: code.to_owned(),
            message: message.to_owned(),
            retryable: false,
            event: None,
            text: None,
            bytes: None,
            truncated: false,
        }
    }

    /// Reject of an item that is not sent.
    pub(super) fn from_invalid(place: Place, invalid: InvalidJson) -> Self {
        let InvalidJson { code, message, bytes, is_event, truncated } = invalid;
        let reject = Self { truncated, ..Self::from_place(place, code, &message) };
        match String::from_utf8(bytes) {
            Ok(json) if is_event => Self { event_id: event_id(&json), event: on_one_line(&json), ..reject },
            Ok(text) => Self { text: Some(text), ..reject },
            Err(error) => Self { bytes: Some(BASE64.encode(error.as_bytes())), ..reject },
        }
    }

    /// Reject of an event that the service did not accept.
    pub(super) fn from_event(place: Place, event: &OutgoingEvent, error: &TransportError) -> Self {
        Self {
            event_id: Some(event.event_id().to_owned()),
            retryable: error.retryable,
            event: on_one_line(event.body()),
            ..Self::from_place(place, error_code(error), error_message(error))
        }
    }

    /// Parses a line of a rejects file. An event is not one: it has a `source_id` or `sourceId`.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // An event fails at its first field.
        let reject: Self = serde_json::from_slice(text).ok()?;
        let contents = [reject.event.is_some(), reject.text.is_some(), reject.bytes.is_some()];
        (contents.into_iter().filter(|is_some| *is_some).count() == 1).then_some(reject)
    }
}

/// The id of an event that is not sent.
fn event_id(json: &str) -> Option<String> {
    let found = udm::find_event_id(json).ok()?;
    let id = found.event_id.filter(|id| id.get() != "null").or(found.metadata_id)?;
    serde_json::from_str(id.get()).ok()
}

/// JSON on one line. Line breaks occur only between the values, because strings contain them escaped.
pub(super) fn on_one_line(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.replace(['\n', '\r'], " ")).ok()
}

/// A reject in the summary.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RejectedLine {
    /// Line of the input on which the event starts, from 1.
    line: u64,
    /// Number of the event in the input, from 1; null if each line is an event.
    item: Option<u64>,
    /// Id of the event; null if it has none, or the text is not an event.
    event_id: Option<String>,
    /// Error code of the API or of the client.
    code: String,
    /// Error message.
    pub(super) message: String,
}

impl From<&Reject> for RejectedLine {
    fn from(reject: &Reject) -> Self {
        let Reject { line, item, event_id, code, message, .. } = reject;
        let (event_id, code, message) = (event_id.clone(), code.clone(), message.clone());
        Self { line: *line, item: *item, event_id, code, message }
    }
}

/// Where to keep rejects.
pub(super) enum RejectsPath {
    /// This file, created or emptied at the start.
    Given(PathBuf),
    /// A new file in the working directory, created at the first reject. Its name starts with this text.
    New(String),
    /// The file of a checkpoint, which had this number of bytes. What follows was written by a run that was killed.
    Continued(PathBuf, u64),
}

impl RejectsPath {
    /// The file to use without --rejects.
    pub(super) fn from_input(input: &Path) -> Self {
        let name = input.file_name().filter(|_| input != Path::new("-"));
        Self::New(name.map_or_else(|| "events".to_owned(), |name| name.to_string_lossy().into_owned()))
    }

    /// The file to use with a checkpoint and without --rejects.
    pub(super) fn beside_checkpoint(checkpoint: &Path) -> PathBuf {
        let mut path = checkpoint.as_os_str().to_owned();
        path.push(format!(".{SUFFIX}"));
        path.into()
    }
}

/// Record of all rejects of a delivery.
pub(super) struct RejectLog {
    out: Output,
    path: RejectsPath,
    file: Option<(PathBuf, File)>,
    /// Files that the command reads.
    inputs: Vec<InputFile>,
    /// Size of the file.
    bytes: u64,
    /// Number of rejects of this run.
    count: u64,
    first: Vec<RejectedLine>,
}

impl RejectLog {
    /// Opens the file, unless it is a new one. It must be neither the checkpoint nor an input.
    pub(super) fn open(
        path: RejectsPath,
        checkpoint: Option<&Path>,
        mut inputs: Vec<InputFile>,
        out: &Output,
    ) -> Result<Self> {
        inputs.extend(checkpoint.and_then(InputFile::at));
        let mut log =
            Self { out: out.clone(), path, file: None, inputs, bytes: 0, count: 0, first: Vec::new() };
        let (RejectsPath::Given(path) | RejectsPath::Continued(path, _)) = &log.path else { return Ok(log) };
        if log.inputs.iter().any(|input| input.is_at(path)) {
            return Err(is_input(path));
        }
        if let RejectsPath::Given(_) | RejectsPath::Continued(_, 1..) = &log.path {
            log.create()?;
        }
        Ok(log)
    }

    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, if there are rejects.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_ref().filter(|_| self.bytes > 0).map(|(path, _)| path.as_path())
    }

    /// Takes the first rejects, in the order of the input.
    pub(super) fn take_first(&mut self) -> Vec<RejectedLine> {
        std::mem::take(&mut self.first)
    }

    /// Keeps rejects, and prints the first ones.
    pub(super) fn add(&mut self, rejects: &[Reject]) -> Result<()> {
        for reject in rejects {
            self.count += 1;
            if self.first.len() < MAX_IN_SUMMARY {
                self.first.push(reject.into());
            }
            if self.count <= MAX_PRINTED {
                let place = described(reject.line, reject.item);
                self.out.notice(&format!("{place}: {}: {}", reject.code, reject.message));
            } else if self.count == MAX_PRINTED + 1 {
                self.out.notice("further rejects are not printed");
            }
        }
        self.keep(rejects)
    }

    /// Keeps rejects without counting or printing them.
    pub(super) fn keep(&mut self, rejects: &[Reject]) -> Result<()> {
        if rejects.is_empty() {
            return Ok(());
        }
        self.create()?;
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut lines = Vec::new();
        for reject in rejects {
            serde_json::to_writer(&mut lines, reject).map_err(|error| write_failed(&error.into(), path))?;
            lines.push(b'\n');
        }
        if let Err(error) = file.write_all(&lines) {
            // Removes a part of them, so that all lines of the file are complete. A device has no size.
            let _ = file.set_len(self.bytes).and_then(|()| file.seek(SeekFrom::Start(self.bytes)));
            return Err(write_failed(&error, path));
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn create(&mut self) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let failed = |error: io::Error, path: &Path| write_failed(&error, path);
        let (path, file) = match &self.path {
            RejectsPath::Given(path) => (path.clone(), self.open_at(path, 0)?),
            RejectsPath::Continued(path, bytes) => {
                let file = self.open_at(path, *bytes)?;
                self.bytes = *bytes;
                (path.clone(), file)
            }
            RejectsPath::New(name) => {
                new_file(name).map_err(|error| failed(error, Path::new(&format!("{name}.{SUFFIX}"))))?
            }
        };
        self.file = Some((path, file));
        Ok(())
    }

    /// Opens a file at this position and removes what follows. An input is not changed, even if another program has linked it to the
    /// path in the meantime.
    fn open_at(&self, path: &Path, bytes: u64) -> Result<File> {
        let failed = |error: io::Error| write_failed(&error, path);
        let file = private().create(true).truncate(false).open(path).map_err(failed)?;
        for input in &self.inputs {
            if input.is(&file).map_err(failed)? {
                return Err(is_input(path));
            }
        }
        cut_at(file, bytes).map_err(failed)
    }
}

fn is_input(path: &Path) -> CliError {
    let message = format!("the command reads {}, so it must not be the rejects file", path.display());
    ErrorKind::Usage.with_message(message).with_remediation("Pass another file as --rejects.")
}

/// Rejects one name for both files, also before they exist.
pub(super) fn check_names(rejects: &Path, checkpoint: &Path) -> Result<()> {
    if has_same_name(rejects, checkpoint) { Err(is_input(rejects)) } else { Ok(()) }
}

/// Returns whether two paths name the same entry of a directory, even if it does not exist.
fn has_same_name(a: &Path, b: &Path) -> bool {
    let resolved = |path: &Path| {
        let path = std::path::absolute(path).ok()?;
        Some((path.parent()?.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    resolved(a).is_some_and(|a| Some(a) == resolved(b))
}

/// Removes what follows a position. A pipe or a device has none.
fn cut_at(mut file: File, bytes: u64) -> io::Result<File> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(file);
    }
    if metadata.len() < bytes {
        return Err(io::Error::other("the file is shorter than at the checkpoint"));
    }
    file.set_len(bytes)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// Creates a file that does not exist. Rejects of an earlier run are never overwritten.
fn new_file(name: &str) -> io::Result<(PathBuf, File)> {
    for number in 1..MAX_NAMES {
        let number = if number == 1 { String::new() } else { format!("{number}.") };
        let path = PathBuf::from(format!("{name}.{number}{SUFFIX}"));
        match private().create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((path, file?)),
        }
    }
    Err(io::Error::other("too many such files exist"))
}

/// Options of a file that only the user can read: events can contain personal data.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn write_failed(error: &io::Error, path: &Path) -> CliError {
    CliError::write_failed(error, &path.display().to_string())
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
        TransportErrorKind::Configuration | TransportErrorKind::UntrustedCertificate => {
            ErrorKind::ConfigurationInvalid
        }
        TransportErrorKind::Connection => ErrorKind::Unreachable,
        TransportErrorKind::Timeout => ErrorKind::TimedOut,
        TransportErrorKind::InvalidEvent => ErrorKind::InputInvalid,
        // Of a proxy that limits requests or has no connection to the service.
        TransportErrorKind::Status if error.status.map(Exit::from_status) == Some(Exit::Unavailable) => {
            ErrorKind::Unreachable
        }
        _ => ErrorKind::UnexpectedResponse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_the_remedy_of_the_api_from_a_message() {
        let kind = ProblemKind::CredentialInvalid;
        let error = |message: String| {
            let mut error = TransportError::new(TransportErrorKind::Status, message);
            error.code = Some(kind.code().to_owned());
            error
        };
        let with_remedy = error(format!("{}: {}", kind.title(), kind.remedy()));
        assert_eq!(error_message(&with_remedy), kind.title());
        assert_eq!(error_message(&error("Title: detail".to_owned())), "Title: detail");
    }

    #[test]
    fn an_event_is_never_a_reject() {
        let reject = r#" {"line":1,"event_id":null,"code":"c","message":"m","retryable":false,"text":"x"}"#;
        assert_eq!(Reject::parse(reject.as_bytes()).unwrap().text.unwrap(), "x");
        for event in [
            r#"{"source_id":"fw"}"#,
            r#"{"line":1,"source_id":"fw"}"#,
            r#"{"line":1,"event_id":"1","code":"c","message":"m","retryable":false,"sourceId":"fw","text":"x"}"#,
            r#"{"line":1,"event_id":"1","code":"c","message":"m","retryable":false,"source_id":"fw","text":"x"}"#,
            r#"{"line":1,"event_id":"1","code":"c","message":"m","retryable":false}"#,
        ] {
            assert!(Reject::parse(event.as_bytes()).is_none(), "{event}");
        }
    }
}
