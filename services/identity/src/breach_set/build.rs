//! Builds a breach set from a Have I Been Pwned download: lines `SHA1:COUNT`, sorted by digest, about 40 GB. The download
//! is read as a stream.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE;

use super::{Entry, HEADER_LEN, Header};

/// Longer than every line of a download.
const MAX_LINE: u64 = 128;
const BUFFER: usize = 1 << 20;

/// Why no breach set was built. An existing file stays unchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("failed to read the download")]
    Read(#[source] io::Error),
    #[error("failed to write the breach set")]
    Write(#[source] io::Error),
    #[error("line {line} {error}")]
    Line { line: u64, error: LineError },
    #[error("the download contains no digest")]
    Empty,
}

/// Why a line of the download is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
    #[error("does not have the form SHA1:COUNT with 40 hex digits")]
    Format,
    #[error("has 32 hex digits (NTLM); use the download of SHA-1 hashes")]
    Ntlm,
    #[error("has 35 hex digits (response for one range); use the download as one file")]
    Range,
    #[error("is not in order; use the download that is sorted by hash")]
    Order,
}

/// Reads a download, writes the set to `to` atomically, and returns the number of entries. Calls `on_line` with the length
/// of each line in bytes.
pub(crate) fn build(
    mut from: impl BufRead,
    to: &Path,
    mut on_line: impl FnMut(u64),
) -> Result<u64, BuildError> {
    let partial = Partial::create(to).map_err(BuildError::Write)?;
    let mut out = BufWriter::with_capacity(BUFFER, &partial.file);
    // A placeholder: the content of the header is known only at the end.
    out.write_all(&[0; HEADER_LEN]).map_err(BuildError::Write)?;
    let mut header: Option<Header> = None;
    let (mut line, mut previous, mut text) = (0, None, Vec::new());
    while read_line(&mut from, &mut text).map_err(BuildError::Read)? {
        line += 1;
        on_line(text.len() as u64);
        let at_line = |error| BuildError::Line { line, error };
        let digest = parse_line(text.trim_ascii_end()).map_err(at_line)?;
        if previous.is_some_and(|previous| digest < previous) {
            return Err(at_line(LineError::Order));
        }
        previous = Some(digest);
        let entry = Entry::from_digest(digest);
        let header = header.get_or_insert(Header { count: 0, first: entry, last: entry });
        if header.count == 0 || header.last < entry {
            out.write_all(&entry.0.to_be_bytes()).map_err(BuildError::Write)?;
            (header.count, header.last) = (header.count + 1, entry);
        }
    }
    let header = header.ok_or(BuildError::Empty)?;
    out.flush().map_err(BuildError::Write)?;
    drop(out);
    partial.file.write_all_at(&header.to_bytes(), 0).map_err(BuildError::Write)?;
    partial.finish(to).map_err(BuildError::Write)?;
    Ok(header.count)
}

/// Reads a line including its terminator. Returns `false` at the end of the input. A line above `MAX_LINE` is truncated and
/// then fails to parse.
fn read_line(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    text.clear();
    let length = io::Read::take(from, MAX_LINE).read_until(b'\n', text)?;
    Ok(length > 0)
}

fn parse_line(line: &[u8]) -> Result<[u8; 20], LineError> {
    let digits = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let mut digest = [0; 20];
    match digits.len() {
        40 => {
            let decoded = HEXLOWER_PERMISSIVE.decode_mut(digits, &mut digest);
            decoded.map_err(|_| LineError::Format)?;
            Ok(digest)
        }
        length @ (32 | 35) if digits.iter().all(u8::is_ascii_hexdigit) => {
            Err(if length == 32 { LineError::Ntlm } else { LineError::Range })
        }
        _ => Err(LineError::Format),
    }
}

/// A temporary file in the target directory. Dropped without [`Partial::finish`], it is deleted.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn create(to: &Path) -> io::Result<Self> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let path = to.with_file_name(format!(".{}.partial", name.display()));
        // A previous run that was killed can leave a file.
        let _ = std::fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }

    fn finish(self, to: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, to)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `finish` the file no longer exists under this name.
        let _ = std::fs::remove_file(&self.path);
    }
}
