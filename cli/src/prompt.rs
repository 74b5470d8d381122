//! Prompts on the terminal. Secrets are never echoed.

use std::io::{self, IsTerminal, Write};

use contract::Secret;

use crate::environment;
use crate::error::{CliError, ErrorKind, Result};
use crate::input::{stdin_line, stdin_secret};
use crate::output::escape;

/// Prompts, if the session is interactive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    /// Why prompting is not possible.
    unavailable: Option<&'static str>,
    /// Whether confirmations are answered with yes.
    assume_yes: bool,
}

impl Prompt {
    /// Prompting is possible if stdin and stderr are terminals and neither `--no-input` nor `CI` is set.
    pub(crate) fn new(no_input: bool, assume_yes: bool) -> Self {
        let unavailable = if no_input {
            Some("--no-input is set")
        } else if environment::is_ci() {
            Some("the variable CI is set")
        } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
            None
        } else {
            Some("there is no terminal")
        };
        Self { unavailable, assume_yes }
    }

    /// Prompts for a line of text. `option` is what to pass if prompting is not possible.
    pub(crate) async fn line(self, question: &'static str, option: &str) -> Result<String> {
        let what = question.to_lowercase();
        self.require_available(&what, option)?;
        let open = OpenQuestion::print(question)?;
        match stdin_line(question).await? {
            Some(line) => {
                open.answered();
                if line.is_empty() { Err(no_input(&what, option)) } else { Ok(line) }
            }
            None => Err(no_input(&what, option)),
        }
    }

    /// Prompts for a secret without echo; `what` names it in errors. Blocks the thread: rpassword handles interrupts
    /// itself because it must restore the terminal.
    pub(crate) fn secret(self, question: &str, what: &str, option: &str) -> Result<Secret> {
        self.require_available(what, option)?;
        match rpassword::prompt_password(format!("{}: ", escape(question))) {
            Ok(typed) if typed.is_empty() => Err(no_input(what, option)),
            Ok(typed) => Ok(Secret::new(typed)),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::Interrupted => ErrorKind::Interrupted.into(),
                io::ErrorKind::UnexpectedEof => {
                    end_line();
                    no_input(what, option)
                }
                _ => ErrorKind::InputUnreadable.with_message(format!("terminal: {error}")),
            }),
        }
    }

    /// Prompts for a new password, twice.
    pub(crate) fn new_password(self, option: &str) -> Result<Secret> {
        choose_password(|question| self.secret(question, "new password", option), print_line)
    }

    /// Token given as an argument: the argument, the next line of standard input for `-`, or a prompt without one.
    pub(crate) async fn token(self, argument: Option<&str>, question: &str) -> Result<Secret> {
        let token = match argument {
            Some("-") => stdin_secret("token").await?,
            Some(token) => Secret::new(token),
            None => self.secret(question, &question.to_lowercase(), "TOKEN (or `-`)")?,
        };
        Ok(Secret::new(token.expose().trim()))
    }

    /// Waits for Enter. Returns false if prompting is not possible or standard input has ended.
    pub(crate) async fn wait_for_enter(self, message: &str) -> Result<bool> {
        if self.unavailable.is_some() {
            return Ok(false);
        }
        print_line(message);
        Ok(stdin_line("Enter").await?.is_some())
    }

    /// Asks for confirmation. Succeeds with `--yes`, or if the answer is yes; an empty answer means no.
    pub(crate) async fn confirm(self, question: &str) -> Result<()> {
        if self.assume_yes {
            return Ok(());
        }
        if let Some(reason) = self.unavailable {
            return Err(ErrorKind::InputNeeded
                .with_message(format!("cannot ask for confirmation: {reason}"))
                .with_remediation("Pass --yes to confirm."));
        }
        let open = OpenQuestion::print(&format!("{} [y/N]", escape(question)))?;
        let Some(answer) = stdin_line("answer").await? else {
            return Err(ErrorKind::Declined.with_message("no answer; nothing was changed"));
        };
        open.answered();
        if is_yes(&answer) { Ok(()) } else { Err(ErrorKind::Declined.into()) }
    }

    /// Asks a question about an optional action. Returns false if prompting is not possible or standard input has ended.
    /// `--yes` only confirms what the command line names, so it does not answer the question.
    pub(crate) async fn ask(self, question: &str) -> Result<bool> {
        if self.unavailable.is_some() || self.assume_yes {
            return Ok(false);
        }
        let open = OpenQuestion::print(&format!("{} [y/N]", escape(question)))?;
        let Some(answer) = stdin_line("answer").await? else { return Ok(false) };
        open.answered();
        Ok(is_yes(&answer))
    }

    fn require_available(self, what: &str, option: &str) -> Result<()> {
        match self.unavailable {
            None => Ok(()),
            Some(reason) => Err(ErrorKind::InputNeeded
                .with_message(format!("cannot prompt for the {what}: {reason}"))
                .with_remediation(format!("Pass {option}."))),
        }
    }
}

/// A printed question without an answer. Ends its line when dropped, so that later output starts on a new line.
struct OpenQuestion {
    answered: bool,
}

impl OpenQuestion {
    fn print(question: &str) -> Result<Self> {
        let mut err = io::stderr().lock();
        let printed = write!(err, "{question}: ").and_then(|()| err.flush());
        printed.map_err(|error| CliError::write_failed(&error, "standard error"))?;
        Ok(Self { answered: false })
    }

    /// The terminal has echoed the line ending of the answer.
    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if !self.answered {
            end_line();
        }
    }
}

fn end_line() {
    print_line("");
}

/// Prints to standard error. A failure cannot be reported anywhere else.
fn print_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn no_input(what: &str, option: &str) -> CliError {
    ErrorKind::InputInvalid
        .with_message(format!("no {what} was entered"))
        .with_remediation(format!("Run the command again and enter the {what}, or pass {option}."))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Minimum length of a password by default. The service may be configured to require more.
const MIN_CHARACTERS: usize = 12;
const MAX_TRIES: usize = 3;

/// Prompts for a new password twice with `ask`, and again if it is too short or the two differ. It reports errors through `report`. The service applies the full policy.
fn choose_password(ask: impl Fn(&str) -> Result<Secret>, report: impl Fn(&str)) -> Result<Secret> {
    let mut error = String::new();
    for attempt in 0..MAX_TRIES {
        if attempt > 0 {
            report(&format!("{error}; try again"));
        }
        let first = ask(&format!("New password (at least {MIN_CHARACTERS} characters)"))?;
        // The service does not count leading and trailing white space either.
        if first.expose().trim().chars().count() < MIN_CHARACTERS {
            error = format!("the password is shorter than {MIN_CHARACTERS} characters");
            continue;
        }
        if first.expose() == ask("Repeat the new password")?.expose() {
            return Ok(first);
        }
        "the passwords do not match".clone_into(&mut error);
    }
    Err(ErrorKind::InputInvalid.with_message(error).with_remediation("Run the command again."))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn accepts_only_y_and_yes() {
        for (answer, expected) in [("y", true), (" Yes ", true), ("", false), ("n", false), ("yep", false)] {
            assert_eq!(is_yes(answer), expected, "{answer}");
        }
    }

    #[test]
    fn error_without_a_terminal_names_reason_and_option() {
        let prompt = Prompt { unavailable: Some("there is no terminal"), assume_yes: true };
        let error = prompt.secret("Password of x", "password", "--password-stdin").unwrap_err();
        assert_eq!((error.code.as_str(), error.exit.code()), ("input_needed", 12));
        assert_eq!(error.message, "cannot prompt for the password: there is no terminal");
        assert_eq!(error.remediation, "Pass --password-stdin.");
    }

    /// Returns the chosen password, the reported errors, and the number of lines that were not read.
    fn choose_from(lines: &[&'static str]) -> (Result<Secret>, Vec<String>, usize) {
        let remaining = RefCell::new(lines.iter());
        let reported = RefCell::new(Vec::new());
        let ask = |_: &str| Ok(Secret::new(*remaining.borrow_mut().next().unwrap()));
        let chosen = choose_password(ask, |text| reported.borrow_mut().push(text.to_owned()));
        (chosen, reported.into_inner(), remaining.into_inner().count())
    }

    #[test]
    fn does_not_ask_to_repeat_a_short_password() {
        let (chosen, reported, remaining) =
            choose_from(&["short", "   short    ", "long enough it is", "long enough it is"]);
        assert_eq!((chosen.unwrap().expose(), remaining), ("long enough it is", 0));
        assert_eq!(reported, ["the password is shorter than 12 characters; try again"; 2]);
    }

    #[test]
    fn asks_again_when_the_passwords_differ() {
        let (chosen, reported, _) = choose_from(&[
            "long enough it is",
            "long enough it was",
            "long enough it is",
            "long enough it is",
        ]);
        assert!(chosen.is_ok());
        assert_eq!(reported, ["the passwords do not match; try again"]);
    }

    #[test]
    fn fails_after_three_tries() {
        let (chosen, reported, remaining) =
            choose_from(&["a", "b", "long enough it is", "long enough it was", "never read"]);
        let error = chosen.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("input_invalid", "the passwords do not match")
        );
        assert_eq!((reported.len(), remaining), (2, 1));
    }
}
