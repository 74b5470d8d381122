//! Lines that automation sends in a person's place, on standard input or in a file. They are bounded in length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use contract::Secret;

use crate::blocking::blocking;
use crate::error::{Fault, Result};

/// Longest line that is taken: far above any token or password, far below what hurts.
const LONGEST_LINE: u64 = 16 * 1024;

/// The next line of standard input as a secret: a password, or a token.
pub(crate) async fn stdin_secret(what: &'static str) -> Result<Secret> {
    match stdin_line(what).await? {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(Fault::InputInvalid.because(format!("standard input holds no {what}"))),
    }
}

/// The first line of a file as a secret.
pub(crate) async fn file_secret(what: &'static str, path: PathBuf) -> Result<Secret> {
    let line = blocking(move || {
        let read = File::open(&path).and_then(|file| line_of(&mut BufReader::new(file)));
        read.map_err(|error| Fault::InputUnreadable.because(format!("{} ({what}): {error}", path.display())))
    })
    .await?;
    match line {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(Fault::InputInvalid.because(format!("the file holds no {what}"))),
    }
}

/// The next line of standard input, without its end; none at the end of the input.
pub(super) async fn stdin_line(what: &'static str) -> Result<Option<String>> {
    blocking(move || {
        line_of(&mut io::stdin().lock())
            .map_err(|error| Fault::InputUnreadable.because(format!("standard input ({what}): {error}")))
    })
    .await
}

fn line_of(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if input.take(LONGEST_LINE).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == LONGEST_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
    }
    let end =
        line.strip_suffix('\n').map_or(line.as_str(), |rest| rest.strip_suffix('\r').unwrap_or(rest)).len();
    line.truncate(end);
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_end_and_nothing_else() {
        let mut input: &[u8] = b" pass word \r\nsecond\n\nlast";
        for expected in [Some(" pass word "), Some("second"), Some(""), Some("last"), None] {
            assert_eq!(line_of(&mut input).unwrap().as_deref(), expected);
        }
    }

    #[test]
    fn a_line_without_end_is_not_read_for_ever() {
        let mut input = io::repeat(b'x');
        assert!(line_of(&mut io::BufReader::new(&mut input)).is_err());
    }
}
