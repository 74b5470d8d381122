//! Standard input and files of secrets, read on blocking threads so that signals are handled meanwhile.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use contract::Secret;

use crate::framework::error::{ErrorKind, Result};
use crate::framework::input_file::{InputFile, require_separate_stdin};
use crate::framework::output::Output;

/// Longest accepted line: far above any token or password.
const MAX_LINE_BYTES: u64 = 16 * 1024;

/// Runs blocking work on a separate thread. An interrupted command does not wait for it.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| ErrorKind::Defect.with_message(error.to_string()))?
}

/// Reads the next line of standard input as a secret. `what` names it in errors.
pub(crate) async fn stdin_secret(what: &'static str, out: &Output) -> Result<Secret> {
    out.announce_input(what, "Enter");
    match stdin_line(what).await? {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(ErrorKind::InputInvalid.with_message(format!("standard input contains no {what}"))),
    }
}

/// Reads the first lines of a file as secrets, one for each name. The names are used in errors.
pub(crate) async fn file_secrets<const N: usize>(
    names: [&'static str; N],
    path: PathBuf,
) -> Result<[Secret; N]> {
    run_blocking(move || {
        let unreadable = |error: io::Error| {
            let names = names.join(", ");
            ErrorKind::InputUnreadable.with_message(format!("{} ({names}): {error}", path.display()))
        };
        let mut file = BufReader::new(open(&path).map_err(unreadable)??);
        let mut secrets = names.map(|_| Secret::new(""));
        for (secret, name) in secrets.iter_mut().zip(names) {
            match read_line(&mut file).map_err(unreadable)? {
                Some(line) if !line.is_empty() => *secret = Secret::new(line),
                _ => {
                    return Err(ErrorKind::InputInvalid.with_message(format!("the file contains no {name}")));
                }
            }
        }
        Ok(secrets)
    })
    .await
}

/// Opens a file to read. The output must not go to it.
pub(crate) fn open(path: &Path) -> io::Result<Result<File>> {
    let file = File::open(path)?;
    let separate = InputFile::from_file(&file).map_or(Ok(()), |input| input.require_not_printed_to());
    Ok(separate.map(|()| file))
}

/// Reads the next line of standard input, without its line ending. Returns `None` at the end of the input.
pub(crate) async fn stdin_line(what: &'static str) -> Result<Option<String>> {
    run_blocking(move || {
        require_separate_stdin()?;
        read_line(&mut io::stdin().lock()).map_err(|error| {
            ErrorKind::InputUnreadable.with_message(format!("standard input ({what}): {error}"))
        })
    })
    .await
}

/// Reads standard input to its end. `what` names it on a terminal.
pub(crate) async fn read_stdin(what: &str, out: &Output) -> Result<Vec<u8>> {
    out.announce_input(what, "Ctrl-D");
    run_blocking(|| {
        require_separate_stdin()?;
        let mut bytes = Vec::new();
        match io::stdin().lock().read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(ErrorKind::InputUnreadable.with_message(format!("standard input: {error}"))),
        }
    })
    .await
}

fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if input.take(MAX_LINE_BYTES).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == MAX_LINE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
    }
    // PowerShell writes a byte order mark into a pipe.
    if line.starts_with('\u{feff}') {
        line.remove(0);
    }
    let length =
        line.strip_suffix('\n').map_or(line.as_str(), |rest| rest.strip_suffix('\r').unwrap_or(rest)).len();
    line.truncate(length);
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_the_line_ending() {
        let mut input: &[u8] = b"\xef\xbb\xbf pass word \r\nsecond\n\nlast";
        for expected in [Some(" pass word "), Some("second"), Some(""), Some("last"), None] {
            assert_eq!(read_line(&mut input).unwrap().as_deref(), expected);
        }
    }

    #[test]
    fn rejects_an_endless_line() {
        let mut input = io::repeat(b'x');
        assert!(read_line(&mut io::BufReader::new(&mut input)).is_err());
    }
}
