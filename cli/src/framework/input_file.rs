//! Files that a command reads. Its output must not go to one of them, however the two are named: links, redirections and
//! `/dev/stdin` lead to the same file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use same_file::Handle;

use crate::framework::error::{ErrorKind, Result};

/// A file or a named pipe that the command reads.
pub(crate) struct InputFile(Handle);

impl InputFile {
    /// Standard input. `None` if it is a terminal, a socket or a device: a program does not read its own output there.
    pub(crate) fn from_stdin() -> Option<Self> {
        Self::new(Handle::stdin().ok()?)
    }

    /// An opened file; `None` as for standard input.
    pub(crate) fn from_file(file: &File) -> Option<Self> {
        Self::new(Handle::from_file(file.try_clone().ok()?).ok()?)
    }

    /// The regular file at a path; `None` if it does not exist.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        // Opening a named pipe would block.
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return Handle::from_path(path).ok().map(Self);
        }
        None
    }

    fn new(handle: Handle) -> Option<Self> {
        let kind = handle.as_file().metadata().ok()?.file_type();
        (kind.is_file() || kind.is_fifo()).then_some(Self(handle))
    }

    /// Returns whether an opened file is this one.
    pub(crate) fn is(&self, file: &File) -> io::Result<bool> {
        Ok(Handle::from_file(file.try_clone()?)? == self.0)
    }

    /// Returns whether the file at a path is this one.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        Self::at(path).is_some_and(|other| other.0 == self.0)
    }

    /// # Errors
    /// Standard output or standard error is this file. The shell has emptied it unless it appends.
    pub(crate) fn require_not_printed_to(&self) -> Result<()> {
        let is_regular = self.0.as_file().metadata().is_ok_and(|metadata| metadata.is_file());
        for (name, stream) in [("standard output", Handle::stdout()), ("standard error", Handle::stderr())] {
            if is_regular && stream.is_ok_and(|stream| stream == self.0) {
                return Err(ErrorKind::Usage
                    .with_message(format!("the input file is {name} too"))
                    .with_remediation(
                        "Redirect the output to another file. If the shell has emptied the input (`>`), restore it first.",
                    ));
            }
        }
        Ok(())
    }
}

/// # Errors
/// Standard output or standard error is the file that standard input reads.
pub(crate) fn require_separate_stdin() -> Result<()> {
    InputFile::from_stdin().map_or(Ok(()), |input| input.require_not_printed_to())
}
