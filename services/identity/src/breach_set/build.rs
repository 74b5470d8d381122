//! Makes a breach set from a download of Have I Been Pwned: lines `SHA1:COUNT`, sorted by digest, some 40 GB of them. It
//! is read once, from its beginning to its end, and never held.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE;

use super::Entry;
use super::header::{HEADER_LEN, Header};

/// Longer than any line of a download.
const MAX_LINE: u64 = 128;
const BUFFER: usize = 1 << 20;

/// No set was made; what was there before still is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("cannot be read")]
    Read(#[source] io::Error),
    #[error("the set cannot be written")]
    Write(#[source] io::Error),
    #[error("line {line} {fault}")]
    Line { line: u64, fault: LineFault },
    #[error("there is no digest in it")]
    Empty,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineFault {
    #[error("is not of the form SHA1:COUNT, with 40 hex digits")]
    Form,
    #[error("has 32 hex digits: this is the download of NTLM hashes, and the one of SHA-1 hashes is needed")]
    Ntlm,
    #[error("has 35 hex digits: this is the answer for one range, and the download as one file is needed")]
    Range,
    #[error("comes before the line above it: the download that is ordered by hash is needed")]
    Order,
}

/// Reads a download and puts the set at `to` once it is whole; returns how many entries it has. `told` hears of each line's
/// length.
pub(crate) fn build(mut from: impl BufRead, to: &Path, mut told: impl FnMut(u64)) -> Result<u64, BuildError> {
    let partial = Partial::create(to).map_err(BuildError::Write)?;
    let mut out = BufWriter::with_capacity(BUFFER, &partial.file);
    // Its place; what stands there is known in the end.
    out.write_all(&[0; HEADER_LEN]).map_err(BuildError::Write)?;
    let mut known: Option<Header> = None;
    let (mut line, mut before, mut text) = (0, None, Vec::new());
    while read_line(&mut from, &mut text).map_err(BuildError::Read)? {
        line += 1;
        told(text.len() as u64);
        let fault = |fault| BuildError::Line { line, fault };
        let digest = digest_of(text.trim_ascii_end()).map_err(fault)?;
        if before.is_some_and(|before| digest < before) {
            return Err(fault(LineFault::Order));
        }
        before = Some(digest);
        let entry = Entry::of_digest(digest);
        let header = known.get_or_insert(Header { count: 0, first: entry, last: entry });
        if header.count == 0 || header.last < entry {
            out.write_all(&entry.0.to_be_bytes()).map_err(BuildError::Write)?;
            (header.count, header.last) = (header.count + 1, entry);
        }
    }
    let header = known.ok_or(BuildError::Empty)?;
    out.flush().map_err(BuildError::Write)?;
    drop(out);
    partial.file.write_all_at(&header.to_bytes(), 0).map_err(BuildError::Write)?;
    partial.finish(to).map_err(BuildError::Write)?;
    Ok(header.count)
}

/// Reads a line with its end; `false` when there is none left. A line that is too long is cut, and is no digest then.
fn read_line(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    text.clear();
    let length = io::Read::take(from, MAX_LINE).read_until(b'\n', text)?;
    Ok(length > 0)
}

fn digest_of(line: &[u8]) -> Result<[u8; 20], LineFault> {
    let digits = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let mut digest = [0; 20];
    match digits.len() {
        40 => {
            let decoded = HEXLOWER_PERMISSIVE.decode_mut(digits, &mut digest);
            decoded.map_err(|_| LineFault::Form)?;
            Ok(digest)
        }
        length @ (32 | 35) if digits.iter().all(u8::is_ascii_hexdigit) => {
            Err(if length == 32 { LineFault::Ntlm } else { LineFault::Range })
        }
        _ => Err(LineFault::Form),
    }
}

/// A file beside the one that it becomes; removed unless it does.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn create(to: &Path) -> io::Result<Self> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let path = to.with_file_name(format!(".{}.partial", name.display()));
        // What a killed run left.
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
        // After `finish` there is none.
        let _ = std::fs::remove_file(&self.path);
    }
}
