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

/// A time for people where room is scarce: UTC, to the minute.
pub(crate) fn minute(time: &DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%MZ").to_string()
}

/// JSON that means the same, with what lies beyond ASCII and steers a terminal as `\u00XX`. Such characters stand in
/// strings only; those of ASCII are escaped by JSON itself, but for the last.
pub(super) fn clean_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut all, c| {
        if c > '~' && steers(c) {
            // All of them are of the basic plane, where a code point is one escape.
            all.extend(format!("\\u{:04x}", u32::from(c)).chars());
        } else {
            all.push(c);
        }
        all
    })
}

fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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

    #[test]
    fn json_for_a_terminal_keeps_its_meaning() {
        let value = serde_json::json!({"a\u{9b}": "\u{7f}\u{9d}0;x\u{61c}\u{202e} Zoë\n"});
        let clean = clean_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(clean.contains(r"\u009d0;x\u061c\u202e Zoë\n") && clean.contains("{\n"), "{clean}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&clean).unwrap(), value);
    }

    proptest! {
        #[test]
        fn no_json_for_a_terminal_steers_it(text in any::<String>()) {
            let clean = clean_json(&serde_json::to_string(&text).unwrap());
            prop_assert!(!clean.chars().any(steers));
            prop_assert_eq!(serde_json::from_str::<String>(&clean).unwrap(), text);
        }

        #[test]
        fn nothing_that_steers_is_left(text in any::<String>()) {
            prop_assert!(!clean(&text).chars().any(steers));
        }
    }
}
