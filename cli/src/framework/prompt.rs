//! Prompts on the terminal. Secrets are never echoed.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use contract::Secret;

use crate::framework::arguments::Globals;
use crate::framework::environment;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::input::{file_secrets, stdin_line, stdin_secret};
use crate::framework::output::{Output, escape, escape_lines};
use crate::framework::terminal::{HiddenInput, OpenQuestion, print_line};

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
    pub(crate) fn new(globals: &Globals) -> Self {
        let unavailable = if globals.no_input {
            Some("--no-input or SVC_NO_INPUT is set")
        } else if environment::is_ci() {
            Some("the variable CI is set")
        } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
            None
        } else {
            Some("there is no terminal")
        };
        Self { unavailable, assume_yes: globals.yes }
    }

    /// Returns whether [`confirm`](Self::confirm) asks a person.
    pub(crate) fn asks_for_confirmation(self) -> bool {
        self.is_available() && !self.assume_yes
    }

    /// Returns whether prompting is possible.
    pub(crate) fn is_available(self) -> bool {
        self.unavailable.is_none()
    }

    /// Prompts for a line of text. `option` is what to pass if prompting is not possible.
    pub(crate) async fn line(self, question: &'static str, option: &str) -> Result<String> {
        let what = question.to_lowercase();
        self.require_available(&what, option)?;
        match answer(question, question).await? {
            Some(line) if !line.is_empty() => Ok(line),
            _ => Err(no_input(&what, option)),
        }
    }

    /// Prompts for a secret without echo; `what` names it in errors.
    pub(crate) async fn secret(self, question: &str, what: &'static str, option: &str) -> Result<Secret> {
        self.secret_or_empty(question, what, option).await?.ok_or_else(|| no_input(what, option))
    }

    /// The same; `None` if the line is empty.
    pub(crate) async fn secret_or_empty(
        self,
        question: &str,
        what: &'static str,
        option: &str,
    ) -> Result<Option<Secret>> {
        self.require_available(what, option)?;
        let typed = hidden_line(&escape(question), what).await?.ok_or_else(|| no_input(what, option))?;
        Ok((!typed.is_empty()).then(|| Secret::new(typed)))
    }

    /// Prompts for a new password of at least `min_characters`, twice, and sends it. Prompts again if the service rejects the password.
    pub(crate) async fn send_new_password<T>(
        self,
        min_characters: usize,
        send: impl AsyncFn(Secret) -> Result<T>,
    ) -> Result<T> {
        loop {
            let ask = async |question: String| {
                self.secret(&question, "new password", PasswordSource::OPTIONS).await
            };
            let password = choose_password(min_characters, ask, print_line).await?;
            match send(password).await {
                Err(error) if error.code.starts_with("password_") => {
                    print_line(&escape_lines(&error.message));
                    print_line(&escape(&error.remediation));
                }
                result => return result,
            }
        }
    }

    /// Waits for Enter. Returns false if prompting is not possible or standard input has ended.
    pub(crate) async fn wait_for_enter(self, message: &str) -> Result<bool> {
        if !self.is_available() {
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
        match answer(&format!("{} [y/N]", escape(question)), "answer").await? {
            None => Err(ErrorKind::Declined.with_message("no answer; nothing was changed")),
            Some(answer) if is_yes(&answer) => Ok(()),
            Some(_) => Err(ErrorKind::Declined.into()),
        }
    }

    /// Asks to type the name of the object. Succeeds with `--yes` too.
    pub(crate) async fn confirm_name(self, question: &str, name: &str) -> Result<()> {
        if !self.asks_for_confirmation() {
            return self.confirm(question).await;
        }
        let question = format!("{} Type {} to confirm", escape(question), escape(name));
        match answer(&question, "answer").await? {
            None => Err(ErrorKind::Declined.with_message("no answer; nothing was changed")),
            Some(answer) if answer.trim() == name => Ok(()),
            Some(_) => Err(ErrorKind::Declined
                .with_message(format!("the answer is not {name}; nothing was changed"))
                .with_remediation(format!("Run the command again and type {name}, or pass --yes."))),
        }
    }

    /// Asks a question about an optional action. Returns false if prompting is not possible or standard input has ended.
    /// `--yes` only confirms what the command line names, so it does not answer the question.
    pub(crate) async fn ask(self, question: &str) -> Result<bool> {
        if !self.is_available() || self.assume_yes {
            return Ok(false);
        }
        let answer = answer(&format!("{} [y/N]", escape(question)), "answer").await?;
        Ok(answer.is_some_and(|answer| is_yes(&answer)))
    }

    /// Requires that prompting is possible. `option` is what to pass if it is not.
    pub(crate) fn require_available(self, what: &str, option: &str) -> Result<()> {
        match self.unavailable {
            None => Ok(()),
            Some(reason) => Err(ErrorKind::InputNeeded
                .with_message(format!("cannot prompt for the {what}: {reason}"))
                .with_remediation(format!("Pass {option}."))),
        }
    }
}

/// Where a command reads passwords from, instead of a prompt.
#[derive(Args)]
pub(crate) struct PasswordSource {
    /// Read each password from the next line of standard input.
    #[arg(long)]
    password_stdin: bool,
    /// Read each password from a line of a file.
    #[arg(long, value_name = "FILE", conflicts_with = "password_stdin")]
    password_file: Option<PathBuf>,
}

impl PasswordSource {
    /// What to pass if prompting is not possible.
    pub(crate) const OPTIONS: &'static str = "--password-stdin or --password-file";

    /// Returns whether the command prompts for its passwords.
    pub(crate) fn is_prompt(&self) -> bool {
        !self.password_stdin && self.password_file.is_none()
    }

    /// Reads the passwords with these names; `None` if the command prompts for them.
    pub(crate) async fn read<const N: usize>(
        self,
        names: [&'static str; N],
        out: &Output,
    ) -> Result<Option<[Secret; N]>> {
        if let Some(path) = self.password_file {
            return file_secrets(names, path).await.map(Some);
        }
        if !self.password_stdin {
            return Ok(None);
        }
        let mut passwords = names.map(|_| Secret::new(""));
        for (password, name) in passwords.iter_mut().zip(names) {
            *password = stdin_secret(name, out).await?;
        }
        Ok(Some(passwords))
    }
}

/// Prints a question and reads a line. `what` names it in errors. Returns `None` at the end of the input.
async fn answer(question: &str, what: &'static str) -> Result<Option<String>> {
    let open = OpenQuestion::print(question)?;
    let line = stdin_line(what).await?;
    if line.is_some() {
        open.answered();
    }
    Ok(line)
}

/// Prompts for a line without echo.
async fn hidden_line(question: &str, what: &'static str) -> Result<Option<String>> {
    // Before the question, so that nothing that is typed after it is echoed.
    let _hidden = HiddenInput::start()
        .map_err(|error| ErrorKind::InputUnreadable.with_message(format!("terminal: {error}")))?;
    answer(question, what).await
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
pub(crate) const MIN_CHARACTERS: usize = 12;
const MAX_TRIES: usize = 3;

/// Prompts for a new password twice with `ask`, and again if it is too short or the two differ. It reports errors through
/// `report`. The service applies the full policy.
async fn choose_password(
    min_characters: usize,
    ask: impl AsyncFn(String) -> Result<Secret>,
    report: impl Fn(&str),
) -> Result<Secret> {
    let mut error = String::new();
    for attempt in 0..MAX_TRIES {
        if attempt > 0 {
            report(&format!("{error}; try again"));
        }
        let first = ask(format!("New password (at least {min_characters} characters)")).await?;
        // The service does not count leading and trailing white space either.
        if first.expose().trim().chars().count() < min_characters {
            error = format!("the password is shorter than {min_characters} characters");
            continue;
        }
        if first.expose() == ask("Repeat the password".to_owned()).await?.expose() {
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

    #[tokio::test]
    async fn error_without_a_terminal_names_reason_and_option() {
        let prompt = Prompt { unavailable: Some("there is no terminal"), assume_yes: true };
        let error = prompt.secret("Password of x", "password", "--password-stdin").await.unwrap_err();
        assert_eq!((error.code.as_str(), error.exit.code()), ("input_needed", 12));
        assert_eq!(error.message, "cannot prompt for the password: there is no terminal");
        assert_eq!(error.remediation, "Pass --password-stdin.");
    }

    /// Returns the chosen password, the reported errors, and the number of lines that were not read.
    async fn choose_from(lines: &[&'static str]) -> (Result<Secret>, Vec<String>, usize) {
        let remaining = RefCell::new(lines.iter());
        let reported = RefCell::new(Vec::new());
        let ask = async |_: String| Ok(Secret::new(*remaining.borrow_mut().next().unwrap()));
        let report = |text: &str| reported.borrow_mut().push(text.to_owned());
        let chosen = choose_password(MIN_CHARACTERS, ask, report).await;
        (chosen, reported.into_inner(), remaining.into_inner().count())
    }

    #[tokio::test]
    async fn does_not_ask_to_repeat_a_short_password() {
        let (chosen, reported, remaining) =
            choose_from(&["short", "   short    ", "long enough it is", "long enough it is"]).await;
        assert_eq!((chosen.unwrap().expose(), remaining), ("long enough it is", 0));
        assert_eq!(reported, ["the password is shorter than 12 characters; try again"; 2]);
    }

    #[tokio::test]
    async fn asks_again_when_the_passwords_differ() {
        let (chosen, reported, _) = choose_from(&[
            "long enough it is",
            "long enough it was",
            "long enough it is",
            "long enough it is",
        ])
        .await;
        assert!(chosen.is_ok());
        assert_eq!(reported, ["the passwords do not match; try again"]);
    }

    #[tokio::test]
    async fn fails_after_three_tries() {
        let (chosen, reported, remaining) =
            choose_from(&["a", "b", "long enough it is", "long enough it was", "never read"]).await;
        let error = chosen.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("input_invalid", "the passwords do not match")
        );
        assert_eq!((reported.len(), remaining), (2, 1));
    }
}
