//! Asking a person, and reading what automation sends in a person's place. Secrets are never echoed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;

use contract::Secret;

use crate::blocking::blocking;
use crate::environment;
use crate::error::{CliError, Fault, Result};
use crate::output::clean;

/// Longest line taken from standard input: far above any token or password, far below what hurts.
const LONGEST_LINE: u64 = 16 * 1024;

/// Whether somebody can be asked, decided once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    can_ask: bool,
    /// Whether what asks for a confirmation is confirmed beforehand.
    confirmed: bool,
}

impl Prompt {
    /// People can be asked when both ends are terminals and nobody has said otherwise.
    pub(crate) fn new(no_input: bool, confirmed: bool) -> Self {
        let terminals = io::stdin().is_terminal() && io::stderr().is_terminal();
        Self { can_ask: terminals && !no_input && !environment::is_automation(), confirmed }
    }

    /// Asks for a line of text. `instead` is what to pass where nobody can be asked.
    pub(crate) async fn line(self, question: &'static str, instead: &str) -> Result<String> {
        self.demand(instead)?;
        ask(question)?;
        match stdin_line(question).await? {
            answer if answer.is_empty() => {
                Err(Fault::InputInvalid.because(format!("nothing was typed for: {question}")))
            }
            answer => Ok(answer),
        }
    }

    /// Asks for a secret without echo. It holds the thread: an interrupt is the prompt's own to handle, since only it can
    /// give the terminal back as it was.
    pub(crate) fn secret(self, question: &str, instead: &str) -> Result<Secret> {
        self.demand(instead)?;
        rpassword::prompt_password(format!("{question}: ")).map(Secret::new).map_err(|error| {
            match error.kind() {
                io::ErrorKind::Interrupted => Fault::Interrupted.bare(),
                _ => Fault::InputUnreadable.because(format!("the terminal: {error}")),
            }
        })
    }

    /// Asks for a new password, twice.
    pub(crate) fn new_password(self, instead: &str) -> Result<Secret> {
        let first = self.secret("New password (at least 12 characters)", instead)?;
        let second = self.secret("The same again", instead)?;
        if first.expose() == second.expose() {
            Ok(first)
        } else {
            Err(Fault::InputInvalid.because("the two passwords differ").advising("Run the command again."))
        }
    }

    /// The token that an argument gives: the argument itself, for `-` the next line of standard input, and without an
    /// argument what a person types.
    pub(crate) async fn token(self, argument: Option<&str>, question: &str) -> Result<Secret> {
        let token = match argument {
            Some("-") => stdin_secret("token").await?,
            Some(token) => Secret::new(token),
            None => self.secret(question, "TOKEN (or `-`)")?,
        };
        Ok(Secret::new(token.expose().trim()))
    }

    /// Goes on only when somebody says that it shall: with `--yes`, or at the terminal. No answer is no.
    pub(crate) async fn confirm(self, question: &str) -> Result<()> {
        if self.confirmed {
            return Ok(());
        }
        if !self.can_ask {
            return Err(Fault::InputNeeded
                .because("this has to be confirmed, and nobody can be asked")
                .advising("Pass --yes if you mean it."));
        }
        ask(&format!("{} [y/N]", clean(question)))?;
        if is_yes(&stdin_line("answer").await?) { Ok(()) } else { Err(Fault::Declined.bare()) }
    }

    fn demand(self, instead: &str) -> Result<()> {
        if self.can_ask { Ok(()) } else { Err(needed(instead)) }
    }
}

fn ask(question: &str) -> Result<()> {
    let mut err = io::stderr().lock();
    let asked = write!(err, "{question}: ").and_then(|()| err.flush());
    asked.map_err(|error| Fault::writing(&error, "standard error"))
}

fn needed(instead: &str) -> CliError {
    Fault::InputNeeded
        .because(format!("{instead} is needed, and nobody can be asked for it"))
        .advising(format!("Pass {instead}."))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// The next line of standard input as a secret: a password, or a token.
pub(crate) async fn stdin_secret(what: &'static str) -> Result<Secret> {
    match stdin_line(what).await? {
        line if line.is_empty() => {
            Err(Fault::InputInvalid.because(format!("standard input holds no {what}")))
        }
        line => Ok(Secret::new(line)),
    }
}

/// The first line of a file as a secret.
pub(crate) async fn file_secret(what: &'static str, path: PathBuf) -> Result<Secret> {
    let line = blocking(move || {
        let read = File::open(&path).and_then(|file| line_of(&mut BufReader::new(file)));
        read.map_err(|error| Fault::InputUnreadable.because(format!("{} ({what}): {error}", path.display())))
    })
    .await?;
    if line.is_empty() {
        return Err(Fault::InputInvalid.because(format!("the file holds no {what}")));
    }
    Ok(Secret::new(line))
}

/// The next line of standard input, without its end.
async fn stdin_line(what: &'static str) -> Result<String> {
    blocking(move || {
        line_of(&mut io::stdin().lock())
            .map_err(|error| Fault::InputUnreadable.because(format!("standard input ({what}): {error}")))
    })
    .await
}

fn line_of(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    input.take(LONGEST_LINE).read_line(&mut line)?;
    if line.len() as u64 == LONGEST_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
    }
    let end =
        line.strip_suffix('\n').map_or(line.as_str(), |rest| rest.strip_suffix('\r').unwrap_or(rest)).len();
    line.truncate(end);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_end_and_nothing_else() {
        let mut input: &[u8] = b" pass word \r\nsecond\n\nlast";
        for expected in [" pass word ", "second", "", "last", ""] {
            assert_eq!(line_of(&mut input).unwrap(), expected);
        }
    }

    #[test]
    fn a_line_without_end_is_not_read_for_ever() {
        let mut input = io::repeat(b'x');
        assert!(line_of(&mut io::BufReader::new(&mut input)).is_err());
    }

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in [("y", true), (" Yes ", true), ("", false), ("n", false), ("yep", false)] {
            assert_eq!(is_yes(answer), expected, "{answer}");
        }
    }

    #[test]
    fn where_nobody_can_be_asked_the_option_is_named() {
        let error =
            Prompt { can_ask: false, confirmed: true }.secret("Password", "--password-stdin").unwrap_err();
        assert_eq!((error.code.as_str(), error.exit.code()), ("input_needed", 12));
        assert_eq!(error.remediation, "Pass --password-stdin.");
    }
}
