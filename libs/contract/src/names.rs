//! Names that people and programs choose: one rule for pages, mails, tables and logs. A name cannot change the text around it.

/// Returns whether a character is a control character, ends a line, or changes the direction of the text around it (UAX 9, section
/// 2; UTS 55, section 3.1).
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks a name. Returns it without surrounding white space.
///
/// # Errors
/// The requirement, if the name does not meet it: for a person who reads "… must have".
pub fn check(name: &str, max_chars: usize) -> Result<&str, String> {
    let name = name.trim();
    let is_valid = (1..=max_chars).contains(&name.chars().count())
        && !name.chars().any(is_unsafe)
        && !name.contains("://")
        && name.chars().any(|c| !c.is_whitespace() && !is_invisible(c));
    if is_valid {
        return Ok(name);
    }
    Err(format!(
        "must have 1 to {max_chars} visible characters, no control characters, no marks of direction, and no link (`://`)"
    ))
}

/// Characters of no width. They are part of names in several scripts, and of emoji.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}')
        || matches!(c, '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
}

/// Returns what can be shown of a name that a program has sent, cut off after `max_chars`. `None` if nothing is left.
pub fn cleaned(name: &str, max_chars: usize) -> Option<String> {
    let name = name.replace(is_unsafe, "").replace("://", " ");
    let name: String = name.trim().chars().take(max_chars).collect();
    check(&name, max_chars).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_scripts_are_accepted_and_trimmed() {
        for name in ["Acme.com Ltd", "Söhne & Co", "山", "שלום", "می‌خواهم", "❤️ 👩‍👩‍👧", "<b>", "a/b: c"]
        {
            assert_eq!(check(&format!(" {name}\n"), 30), Ok(name));
        }
        assert_eq!(check(&"ä".repeat(30), 30).unwrap().chars().count(), 30);
    }

    #[test]
    fn names_that_deceive_are_rejected() {
        for name in [
            "",
            " ",
            "a\nb",
            "a\u{1b}[2J",
            "a\u{2028}b",
            "TV \u{202e}gnp.exe",
            "\u{2066}a\u{2069}",
            "a\u{200f}",
            "\u{200b}\u{200d}",
            "https://evil.example",
            &"x".repeat(31),
        ] {
            assert!(check(name, 30).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_name_of_a_program_is_shortened_to_what_can_be_shown() {
        assert_eq!(cleaned(" a\n\u{1b}[2J\u{202e}tv ", 64).as_deref(), Some("a[2Jtv"));
        assert_eq!(cleaned("see https://evil.example", 64).as_deref(), Some("see https evil.example"));
        assert_eq!(cleaned(" \u{7}\u{202e}\u{200b} ", 64), None);
        assert_eq!(cleaned(&"ä".repeat(100), 64).unwrap().chars().count(), 64);
    }
}
