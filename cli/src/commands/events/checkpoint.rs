//! The checkpoint of a delivery: which events of an input are settled, so that another run continues after any interruption. It
//! is replaced atomically after each batch, and its size does not grow with the input.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use same_file::Handle;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use uuid::Uuid;

use super::ranges::ItemRanges;
use crate::framework::error::{CliError, ErrorKind, Result};

const FORMAT: &str = "svc.checkpoint.v1";
/// Larger files are not checkpoints.
const MAX_BYTES: u64 = 1024 * 1024;
/// The file is written to disk at this interval. In between, it survives the end of the process, but not that of the machine.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// What a delivery sends, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// Size of the input.
    pub(super) bytes: u64,
    /// SHA-256 of the input as hex digits.
    pub(super) sha256: String,
    /// Base URL of the service.
    pub(super) service: String,
}

/// Results of all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) accepted: u64,
    /// Part of `accepted`.
    pub(super) duplicates: u64,
    /// Invalid events that the service stores as dead letters.
    pub(super) quarantined: u64,
    pub(super) rejected: u64,
    /// Whether a reject cannot be accepted later without a change.
    #[serde(default)]
    pub(super) needs_correction: bool,
    /// Whether only the start of a reject is kept.
    #[serde(default)]
    pub(super) truncated: bool,
}

impl Counts {
    /// Returns whether the service has stored anything.
    pub(super) fn any_stored(&self) -> bool {
        self.accepted > 0 || self.quarantined > 0
    }
}

#[derive(Serialize, Deserialize)]
struct CheckpointFile {
    format: String,
    #[serde(flatten)]
    subject: Subject,
    /// Numbers of the events that were accepted, quarantined or rejected.
    settled: ItemRanges,
    counts: Counts,
    /// Size of the rejects file.
    rejects_bytes: u64,
}

/// A checkpoint file.
pub(super) struct Checkpoint {
    path: PathBuf,
    state: CheckpointFile,
    last_sync: Option<Instant>,
    /// The current file, which is locked, so that another run neither sends the same events nor changes their rejects.
    locked: File,
}

impl Checkpoint {
    /// Reads the file, or creates it.
    ///
    /// # Errors
    /// The file is not the checkpoint of this delivery, or another run uses it.
    pub(super) fn open(path: &Path, subject: Subject) -> Result<Self> {
        match lock(path) {
            Ok(Some(locked)) => Self::open_locked(path, &subject, locked),
            Ok(None) => Self::create(path, subject),
            Err(TryLockError::WouldBlock) => Err(in_use(path)),
            Err(TryLockError::Error(error)) => {
                let message = format!("cannot lock the checkpoint {}: {error}", path.display());
                Err(ErrorKind::InputUnreadable.with_message(message))
            }
        }
    }

    fn open_locked(path: &Path, subject: &Subject, locked: File) -> Result<Self> {
        match read(&locked) {
            Ok(state) if state.subject == *subject => {
                Ok(Self { path: path.to_owned(), state, last_sync: None, locked })
            }
            Ok(state) => Err(mismatch(path, &state.subject, subject)),
            Err(error) => {
                let message = format!("cannot read the checkpoint {}: {error}", path.display());
                Err(ErrorKind::InputUnreadable.with_message(message).with_remediation(
                    "Pass a checkpoint of `svc events send`, or a new file name. With a new one, all events are sent.",
                ))
            }
        }
    }

    fn create(path: &Path, subject: Subject) -> Result<Self> {
        let locked = File::create_new(path).and_then(|file| {
            file.try_lock()?;
            Ok(file)
        });
        let locked = locked.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists if path.is_symlink() => {
                write_failed(path, &io::Error::other("it is a link to a file that does not exist"))
            }
            // Another run has created it in the meantime.
            io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock => in_use(path),
            _ => write_failed(path, &error),
        })?;
        let state = CheckpointFile {
            format: FORMAT.to_owned(),
            subject,
            settled: ItemRanges::default(),
            counts: Counts::default(),
            rejects_bytes: 0,
        };
        let mut checkpoint = Self { path: path.to_owned(), state, last_sync: None, locked };
        checkpoint.check_writable()?;
        Ok(checkpoint)
    }

    /// Replaces the file before the first request: no event is sent that it cannot record.
    pub(super) fn check_writable(&mut self) -> Result<()> {
        self.write(true)
    }

    /// Numbers of the events that need not be sent again.
    pub(super) fn settled(&self) -> &ItemRanges {
        &self.state.settled
    }

    /// Results of earlier runs.
    pub(super) fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Size of the rejects file.
    pub(super) fn rejects_bytes(&self) -> u64 {
        self.state.rejects_bytes
    }

    /// Saves the settled events and the results of all runs.
    pub(super) fn save(
        &mut self,
        settled: &ItemRanges,
        counts: Counts,
        rejects_bytes: u64,
        is_last: bool,
    ) -> Result<()> {
        self.state.settled.clone_from(settled);
        (self.state.counts, self.state.rejects_bytes) = (counts, rejects_bytes);
        self.write(is_last || self.last_sync.is_none_or(|last| last.elapsed() >= SYNC_INTERVAL))
    }

    fn write(&mut self, sync: bool) -> Result<()> {
        self.locked =
            replace(&self.path, &self.state, sync).map_err(|error| write_failed(&self.path, &error))?;
        if sync {
            self.last_sync = Some(Instant::now());
        }
        Ok(())
    }
}

fn write_failed(path: &Path, error: &io::Error) -> CliError {
    CliError::write_failed(error, &path.display().to_string())
}

/// Locks the file. `None` if it does not exist.
fn lock(path: &Path) -> std::result::Result<Option<File>, TryLockError> {
    loop {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(TryLockError::Error)?,
        };
        file.try_lock()?;
        // A run that has ended in the meantime can have replaced the file.
        let is_current = || Ok(Handle::from_file(file.try_clone()?)? == Handle::from_path(path)?);
        if is_current().map_err(TryLockError::Error)? {
            return Ok(Some(file));
        }
    }
}

fn in_use(path: &Path) -> CliError {
    let message = format!("another run uses the checkpoint {}", path.display());
    ErrorKind::InputUnreadable.with_message(message).with_remediation(
        "Wait for its end, then run the command again. Parallel runs need different inputs and checkpoints.",
    )
}

fn read(file: &File) -> io::Result<CheckpointFile> {
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    if text.is_empty() {
        // A run that was killed before its first request leaves an empty file, and so can a power failure in the middle of a delivery.
        return Err(io::Error::other("it is empty"));
    }
    parse(&text)
}

fn parse(text: &[u8]) -> io::Result<CheckpointFile> {
    let state: CheckpointFile =
        serde_json::from_slice(text).map_err(|_| io::Error::other("it is not a checkpoint"))?;
    if state.format == FORMAT { Ok(state) } else { Err(io::Error::other("it has an unknown format")) }
}

/// Replaces the file by a new one, so that it is complete at any time. The temporary name is not that of another file.
fn replace(path: &Path, state: &CheckpointFile, sync: bool) -> io::Result<File> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", Uuid::now_v7()));
    let mut file = File::create_new(&temporary)?;
    file.try_lock()?;
    let written = file
        .write_all(&serde_json::to_vec(state)?)
        .and_then(|()| if sync { file.sync_all() } else { Ok(()) });
    let replaced = written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // The first error is reported.
        let _ = fs::remove_file(&temporary);
    });
    replaced.map(|()| file)
}

fn mismatch(path: &Path, stored: &Subject, current: &Subject) -> CliError {
    let what = if stored.service == current.service {
        format!("of another input ({} bytes, SHA-256 {})", stored.bytes, stored.sha256)
    } else {
        format!("for another service ({})", stored.service)
    };
    let message = format!("{} is a checkpoint {what}", path.display());
    ErrorKind::InputInvalid.with_message(message).with_remediation(
        "Pass the input and the --base-url of the checkpoint, or another --checkpoint file to send this input from the start.",
    )
}

/// Adds a number to a checkpoint file; `None` if the file is invalid.
#[cfg(fuzzing)]
pub fn fuzzed(file: &[u8], number: u64) -> Option<String> {
    let mut state = parse(file).ok()?;
    let before = state.settled.count();
    let added = u64::from(!state.settled.contains(number));
    state.settled.insert(number, number);
    assert!(state.settled.contains(number) && state.settled.count() == before + added);
    serde_json::to_string(&state).ok()
}
