//! Text that came over the wire, made safe for a terminal.

use chrono::{DateTime, SecondsFormat, Utc};

/// The text on one line, with everything that could steer a terminal or turn the reading direction written as an escape.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// The same for text of several lines, which keeps their ends and its tabs.
pub(super) fn clean_text(text: &str) -> String {
    text.split_inclusive(['\n', '\t']).fold(String::with_capacity(text.len()), |mut all, part| {
        let kept = part.trim_end_matches(['\n', '\t']).len();
        all.push_str(&clean(&part[..kept]));
        all.push_str(&part[kept..]);
        all
    })
}

/// A time for people: UTC, to the second.
pub(crate) fn time(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_that_would_steer_a_terminal_are_spelt_out() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\u{d}\\u{a}");
        assert_eq!(clean("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
        assert_eq!(clean("Zoë 山 👩"), "Zoë 山 👩");
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(text in any::<String>()) {
            prop_assert!(!clean(&text).chars().any(steers));
        }
    }
}
