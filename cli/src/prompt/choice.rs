//! Choosing a new password: typed twice, and asked for again while it cannot be taken.

use contract::Secret;

use crate::error::{Fault, Result};

/// Fewest characters of a password: what the service demands unless it is configured to demand more.
const FEWEST: usize = 12;
/// How often a person may try: who errs more often has misunderstood something.
const TRIES: usize = 3;

/// The new password that `ask` gets, which tells its mistakes through `tell`. The service has the last word on it.
pub(super) fn chosen(ask: impl Fn(&str) -> Result<Secret>, tell: impl Fn(&str)) -> Result<Secret> {
    let mut mistake = String::new();
    for attempt in 0..TRIES {
        if attempt > 0 {
            tell(&format!("{mistake}; try again"));
        }
        let first = ask(&format!("New password (at least {FEWEST} characters)"))?;
        // Counted as the service counts: blanks at the ends do not make a password longer.
        if first.expose().trim().chars().count() < FEWEST {
            mistake = format!("the password is shorter than {FEWEST} characters");
            continue;
        }
        if first.expose() == ask("The same again")?.expose() {
            return Ok(first);
        }
        "the two passwords differ".clone_into(&mut mistake);
    }
    Err(Fault::InputInvalid.because(mistake).advising("Run the command again."))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// What is chosen when this is typed, what was told, and how much was left untyped.
    fn typing(lines: &[&'static str]) -> (Result<Secret>, Vec<String>, usize) {
        let left = RefCell::new(lines.iter());
        let told = RefCell::new(Vec::new());
        let ask = |_: &str| Ok(Secret::new(*left.borrow_mut().next().unwrap()));
        let outcome = chosen(ask, |text| told.borrow_mut().push(text.to_owned()));
        (outcome, told.into_inner(), left.into_inner().count())
    }

    #[test]
    fn a_password_that_is_too_short_is_not_asked_for_twice() {
        let (chosen, told, left) =
            typing(&["short", "   short    ", "long enough it is", "long enough it is"]);
        assert_eq!((chosen.unwrap().expose(), left), ("long enough it is", 0));
        assert_eq!(told, ["the password is shorter than 12 characters; try again"; 2]);
    }

    #[test]
    fn a_repetition_that_differs_leads_to_another_try() {
        let (chosen, told, _) =
            typing(&["long enough it is", "long enough it was", "long enough it is", "long enough it is"]);
        assert!(chosen.is_ok());
        assert_eq!(told, ["the two passwords differ; try again"]);
    }

    #[test]
    fn three_tries_are_all() {
        let (chosen, told, left) =
            typing(&["a", "b", "long enough it is", "long enough it was", "never read"]);
        let error = chosen.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("input_invalid", "the two passwords differ")
        );
        assert_eq!((told.len(), left), (2, 1));
    }
}
