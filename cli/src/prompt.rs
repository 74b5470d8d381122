//! Asking a person. Secrets are never echoed; a question that is left unanswered ends its line.

mod choice;
mod line;

use std::io::{self, IsTerminal, Write};

use contract::Secret;

pub(crate) use line::{file_secret, stdin_secret};

use self::choice::chosen;
use self::line::stdin_line;
use crate::environment;
use crate::error::{CliError, Fault, Result};
use crate::output::clean;

/// Whether somebody can be asked, decided once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    /// Why nobody can be asked.
    obstacle: Option<&'static str>,
    /// Whether what asks for a confirmation is confirmed beforehand.
    confirmed: bool,
}

impl Prompt {
    /// People can be asked when both ends are terminals and nobody has said otherwise.
    pub(crate) fn new(no_input: bool, confirmed: bool) -> Self {
        let obstacle = if no_input {
            Some("--no-input forbids asking")
        } else if environment::is_automation() {
            Some("the variable CI forbids asking")
        } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
            None
        } else {
            Some("there is no terminal to ask")
        };
        Self { obstacle, confirmed }
    }

    /// Asks for a line of text. `instead` is what to pass where nobody can be asked.
    pub(crate) async fn line(self, question: &'static str, instead: &str) -> Result<String> {
        let what = question.to_lowercase();
        self.demand(&what, instead)?;
        let asked = Asked::new(question)?;
        match stdin_line(question).await? {
            Some(answer) => {
                asked.answered();
                if answer.is_empty() { Err(nothing_typed(&what, instead)) } else { Ok(answer) }
            }
            None => Err(nothing_typed(&what, instead)),
        }
    }

    /// Asks for a secret without echo; `what` names it. It holds the thread: an interrupt is the prompt's own to handle,
    /// since only it can give the terminal back as it was.
    pub(crate) fn secret(self, question: &str, what: &str, instead: &str) -> Result<Secret> {
        self.demand(what, instead)?;
        match rpassword::prompt_password(format!("{}: ", clean(question))) {
            Ok(typed) if typed.is_empty() => Err(nothing_typed(what, instead)),
            Ok(typed) => Ok(Secret::new(typed)),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::Interrupted => Fault::Interrupted.bare(),
                io::ErrorKind::UnexpectedEof => {
                    end_line();
                    nothing_typed(what, instead)
                }
                _ => Fault::InputUnreadable.because(format!("the terminal: {error}")),
            }),
        }
    }

    /// Asks for a new password, twice; again when it is too short or the repetition differs.
    pub(crate) fn new_password(self, instead: &str) -> Result<Secret> {
        chosen(|question| self.secret(question, "new password", instead), tell)
    }

    /// The token that an argument gives: the argument itself, for `-` the next line of standard input, and without an
    /// argument what a person types.
    pub(crate) async fn token(self, argument: Option<&str>, question: &str) -> Result<Secret> {
        let token = match argument {
            Some("-") => stdin_secret("token").await?,
            Some(token) => Secret::new(token),
            None => self.secret(question, &question.to_lowercase(), "TOKEN (or `-`)")?,
        };
        Ok(Secret::new(token.expose().trim()))
    }

    /// Waits until somebody presses Enter. False where nobody can be asked, or nothing can be typed any more.
    pub(crate) async fn pause(self, invitation: &str) -> Result<bool> {
        if self.obstacle.is_some() {
            return Ok(false);
        }
        tell(invitation);
        Ok(stdin_line("Enter").await?.is_some())
    }

    /// Goes on only when somebody says that it shall: with `--yes`, or at the terminal. No answer is no.
    pub(crate) async fn confirm(self, question: &str) -> Result<()> {
        if self.confirmed {
            return Ok(());
        }
        if let Some(obstacle) = self.obstacle {
            return Err(Fault::InputNeeded
                .because(format!("this has to be confirmed, and {obstacle}"))
                .advising("Pass --yes if you mean it."));
        }
        let asked = Asked::new(&format!("{} [y/N]", clean(question)))?;
        let Some(answer) = stdin_line("answer").await? else {
            return Err(Fault::Declined.because("nothing was typed, so nothing was done"));
        };
        asked.answered();
        if is_yes(&answer) { Ok(()) } else { Err(Fault::Declined.bare()) }
    }

    fn demand(self, what: &str, instead: &str) -> Result<()> {
        match self.obstacle {
            None => Ok(()),
            Some(obstacle) => Err(Fault::InputNeeded
                .because(format!("{obstacle} for the {what}"))
                .advising(format!("Pass {instead}."))),
        }
    }
}

/// A question that stands on the terminal. Dropped without an answer, as by an interrupt, it ends its line, so that what
/// is said next begins on one of its own.
struct Asked {
    answered: bool,
}

impl Asked {
    fn new(question: &str) -> Result<Self> {
        let mut err = io::stderr().lock();
        let asked = write!(err, "{question}: ").and_then(|()| err.flush());
        asked.map_err(|error| Fault::writing(&error, "standard error"))?;
        Ok(Self { answered: false })
    }

    /// Whoever answered has ended the line.
    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answered {
            end_line();
        }
    }
}

fn end_line() {
    tell("");
}

/// Tells whoever is being asked. Where even that fails, there is nobody left to tell.
fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn nothing_typed(what: &str, instead: &str) -> CliError {
    Fault::InputInvalid
        .because("nothing was typed")
        .advising(format!("Run the command again and type the {what}, or pass {instead}."))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in [("y", true), (" Yes ", true), ("", false), ("n", false), ("yep", false)] {
            assert_eq!(is_yes(answer), expected, "{answer}");
        }
    }

    #[test]
    fn where_nobody_can_be_asked_the_reason_and_the_option_are_named() {
        let nobody = Prompt { obstacle: Some("there is no terminal to ask"), confirmed: true };
        let error = nobody.secret("Password of x", "password", "--password-stdin").unwrap_err();
        assert_eq!((error.code.as_str(), error.exit.code()), ("input_needed", 12));
        assert_eq!(error.message, "there is no terminal to ask for the password");
        assert_eq!(error.remediation, "Pass --password-stdin.");
    }
}
