//! Prompts for a new password, twice, and again if it is too short or the two differ.

use contract::Secret;

use crate::error::{ErrorKind, Result};

/// Minimum length of a password by default. The service may be configured to require more.
const MIN_CHARACTERS: usize = 12;
const MAX_TRIES: usize = 3;

/// Prompts for a new password with `ask`, and reports errors through `report`. The service applies the full policy.
pub(super) fn choose_password(ask: impl Fn(&str) -> Result<Secret>, report: impl Fn(&str)) -> Result<Secret> {
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
