//! Escaping of untrusted text for a terminal, and times for people.

use chrono::{DateTime, SecondsFormat, Utc};

/// Escapes control characters, line endings and characters that change the text direction.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Like [`escape`], but keeps line endings and tabs.
pub(super) fn escape_lines(text: &str) -> String {
    text.split_inclusive(['\n', '\t']).fold(String::with_capacity(text.len()), |mut all, part| {
        let kept = part.trim_end_matches(['\n', '\t']).len();
        all.push_str(&escape(&part[..kept]));
        all.push_str(&part[kept..]);
        all
    })
}

/// Formats a time in UTC, to the second.
pub(crate) fn time(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Formats a time in UTC, to the minute, for wide tables.
pub(crate) fn minute(time: &DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%MZ").to_string()
}

/// Escapes unsafe characters of a JSON document as `\u00XX` without changing its meaning. They occur only in strings, and
/// JSON itself escapes those of ASCII except DEL.
pub(super) fn escape_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut all, c| {
        if c > '~' && is_unsafe(c) {
            // All of them are in the basic multilingual plane, so that one escape is enough.
            all.extend(format!("\\u{:04x}", u32::from(c)).chars());
        } else {
            all.push(c);
        }
        all
    })
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_control_and_direction_characters() {
        assert_eq!(escape("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\u{d}\\u{a}");
        assert_eq!(escape("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
        assert_eq!(escape("Zoë 山 👩"), "Zoë 山 👩");
    }

    #[test]
    fn escaped_json_keeps_its_meaning() {
        let value = serde_json::json!({"a\u{9b}": "\u{7f}\u{9d}0;x\u{61c}\u{202e} Zoë\n"});
        let escaped = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(escaped.contains(r"\u009d0;x\u061c\u202e Zoë\n") && escaped.contains("{\n"), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    proptest! {
        #[test]
        fn escaped_json_has_no_unsafe_characters(text in any::<String>()) {
            let escaped = escape_json(&serde_json::to_string(&text).unwrap());
            prop_assert!(!escaped.chars().any(is_unsafe));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }

        #[test]
        fn escaped_text_has_no_unsafe_characters(text in any::<String>()) {
            prop_assert!(!escape(&text).chars().any(is_unsafe));
        }
    }
}
