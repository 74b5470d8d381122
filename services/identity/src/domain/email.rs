//! E-mail addresses: stored as typed, compared trimmed, in NFC, with the domain in ASCII form and both parts in lower case.

use std::str::FromStr;

use unicode_normalization::UnicodeNormalization as _;
use unicode_security::skeleton;

/// RFC 5321, section 4.5.3.1: maximum octets of the local part, and of the address.
const MAX_LOCAL: usize = 64;
const MAX_ADDRESS: usize = 254;

/// A valid e-mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Email {
    typed: String,
    key: EmailKey,
}

/// The normalized form by which addresses are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmailKey(String);

/// The text is not a valid e-mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an e-mail address such as name@example.com")]
pub(crate) struct InvalidEmail;

impl Email {
    /// Returns the address as typed, trimmed.
    pub(crate) fn typed(&self) -> &str {
        &self.typed
    }

    pub(crate) fn key(&self) -> &EmailKey {
        &self.key
    }
}

impl FromStr for Email {
    type Err = InvalidEmail;

    fn from_str(text: &str) -> Result<Self, InvalidEmail> {
        let typed: String = text.trim().nfc().collect();
        let (local, domain) = typed.rsplit_once('@').ok_or(InvalidEmail)?;
        let unusable = |c: char| {
            c.is_control()
                || is_ignorable(c)
                || c.is_whitespace()
                || matches!(c, '<' | '>' | '"' | ',' | ';' | '@' | '\\')
        };
        if local.is_empty() || local.chars().any(unusable) || domain.chars().any(unusable) {
            return Err(InvalidEmail);
        }
        let domain = idna::domain_to_ascii_strict(domain).map_err(|_| InvalidEmail)?;
        let key = format!("{}@{}", local.to_lowercase(), domain.to_lowercase());
        // An address that the mailer cannot parse could never receive its mail.
        let sendable = format!("{local}@{domain}").parse::<lettre::Address>().is_ok();
        let longest = local.len().max(local.to_lowercase().len());
        if !sendable
            || domain.is_empty()
            || longest > MAX_LOCAL
            || key.len() > MAX_ADDRESS
            || typed.len() > MAX_ADDRESS
        {
            return Err(InvalidEmail);
        }
        Ok(Self { typed, key: EmailKey(key) })
    }
}

/// Returns whether a character is invisible or changes the direction of text, so that one address could look like another:
/// `Default_Ignorable_Code_Point` of Unicode 17 (`DerivedCoreProperties.txt`).
pub(super) fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether the part of an address before the `@` cannot be mistaken for a link or a text: it contains letters, digits and
/// `.`, `_`, `+`, `-` only. RFC 5322, section 3.2.3, permits more, for example `/` and `=`.
pub(crate) fn is_plain(address: &str) -> bool {
    let (local, _) = address.rsplit_once('@').unwrap_or_default();
    !local.is_empty() && local.chars().all(|c| c.is_alphanumeric() || "._+-".contains(c))
}

impl EmailKey {
    /// Wraps a key that was read from the database.
    pub(crate) fn from_stored(key: String) -> Self {
        Self(key)
    }

    /// Returns the key for the input of a login. Invalid input maps to a key that no account has, so that the login takes the
    /// same path.
    pub(crate) fn from_typed(text: &str) -> Self {
        text.parse::<Email>().map_or_else(|_| Self("unusable".to_owned()), |email| email.key)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the skeleton of the address (UTS 39, section 4): addresses that look the same have the same one. Only characters
    /// outside ASCII are replaced, so that addresses such as `corn@example.com` and `com@example.com` remain different.
    pub(crate) fn skeleton(&self) -> String {
        let (local, domain) = self.0.rsplit_once('@').unwrap_or_default();
        let (domain, _) = idna::domain_to_unicode(domain);
        let skeleton_of = |c: char| -> String {
            if c.is_ascii() { c.to_string() } else { skeleton(c.encode_utf8(&mut [0; 4])).collect() }
        };
        format!("{local}@{domain}").nfkc().map(skeleton_of).collect::<String>().to_lowercase()
    }

    /// Returns the address without its tag: `ada@example.com` for `ada+list@example.com`. `None` if it has no tag. Many mail
    /// servers deliver all tags to one mailbox.
    pub(crate) fn without_tag(&self) -> Option<Self> {
        let (local, domain) = self.0.rsplit_once('@')?;
        let (name, _) = local.split_once('+').filter(|(name, _)| !name.is_empty())?;
        Some(Self(format!("{name}@{domain}")))
    }

    /// Returns the part before the `@`.
    pub(crate) fn local_part(&self) -> &str {
        self.0.split('@').next().unwrap_or_default()
    }
}

/// The address as typed and its key, if the text is an address, and the key for a login with this text.
#[cfg(fuzzing)]
pub fn fuzzed(text: &str) -> (Option<(String, String)>, String) {
    let email = text.parse::<Email>().ok().map(|email| (email.typed, email.key.0));
    let key = EmailKey::from_typed(text);
    let _ = (key.skeleton(), key.without_tag(), is_plain(text));
    (email, key.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equivalent_spellings_have_the_same_key() {
        let key = |text: &str| text.parse::<Email>().unwrap().key;
        assert_eq!(key(" Ada@Example.COM "), key("ada@example.com"));
        assert_eq!(key("ada@bücher.example"), key("ada@xn--bcher-kva.example"));
        assert_eq!(key("jose\u{301}@example.com"), key("jos\u{e9}@example.com"));
        assert_ne!(key("ada@example.com"), key("ada@example.org"));
        assert_eq!(" Ada@Example.COM ".parse::<Email>().unwrap().typed(), "Ada@Example.COM");
    }

    #[test]
    fn addresses_that_differ_in_the_tag_have_one_mailbox() {
        let without_tag = |text: &str| EmailKey::from_typed(text).without_tag();
        assert_eq!(without_tag("Ada+a@Example.com"), Some(EmailKey::from_typed("ada@example.com")));
        assert_eq!(without_tag("ada+a+b@example.com"), without_tag("ada+c@example.com"));
        assert_eq!((without_tag("ada@example.com"), without_tag("+a@example.com")), (None, None));
    }

    #[test]
    fn rejects_invalid_addresses_and_maps_them_to_an_unused_key() {
        let long = format!("{}@example.com", "a".repeat(65));
        for bad in [
            "",
            "ada",
            "@example.com",
            "ada@",
            "a b@example.com",
            "ada@exa mple.com",
            "a@b@c",
            "a\0@b.c",
            "<a@b.c>",
            "a,b@c.d",
            "a..b@c.d",
            "\"ada\"@b.c",
            "\"a b\"@b.c",
            "a\u{202e}b@c.d",
            "a\u{a0}b@c.d",
            "a\u{3164}b@c.d",
            "a\u{115f}b@c.d",
            "a\u{fe0f}b@c.d",
            &long,
        ] {
            assert!(bad.parse::<Email>().is_err(), "{bad}");
            assert!(!EmailKey::from_typed(bad).as_str().contains('@'), "{bad}");
        }
    }

    #[test]
    fn the_part_before_the_at_sign_has_at_most_64_bytes_also_in_lower_case() {
        let is_valid = |local: &str| format!("{local}@example.com").parse::<Email>().is_ok();
        assert!(is_valid(&"a".repeat(64)) && !is_valid(&"a".repeat(65)));
        // The lower case of this letter has three bytes instead of two.
        assert!(is_valid(&"\u{130}".repeat(21)) && !is_valid(&"\u{130}".repeat(22)));
    }

    #[test]
    fn an_address_has_at_most_254_bytes_as_typed_and_as_a_key() {
        let is_valid = |address: String| address.parse::<Email>().is_ok();
        let domain = |last: usize| format!("{0}.{0}.{1}", "d".repeat(63), "d".repeat(last));
        assert!(is_valid(format!("{}@{}", "a".repeat(64), domain(61))));
        assert!(!is_valid(format!("{}@{}", "a".repeat(64), domain(62))));
        // Three bytes as typed, one byte as a key.
        let wide = |local: usize| format!("{}@{}.examplee", "a".repeat(local), "\u{ff44}".repeat(60));
        assert!(wide(64).len() == 254 && is_valid(wide(64)));
        assert!(!is_valid(wide(64).replace("examplee", "exampleee")));
        // Two bytes as typed, seven bytes as a key.
        let expanding = |local: usize| format!("{}@{}example", "a".repeat(local), "\u{fc}.".repeat(30));
        assert!(is_valid(expanding(6)) && !is_valid(expanding(7)));
    }

    #[test]
    fn an_address_that_looks_like_a_link_is_not_plain() {
        assert!(["ada@example.com", "zoë.o_k+tag-1@example.com"].into_iter().all(is_plain));
        assert!(
            !["www.evil.example/pay-now@example.com", "a=b@example.com", "no address"]
                .into_iter()
                .any(is_plain)
        );
    }

    #[test]
    fn addresses_that_look_the_same_have_the_same_skeleton() {
        let skeleton = |text: &str| text.parse::<Email>().unwrap().key.skeleton();
        for same in [
            "ａdmin@example.com",
            "ａｄｍｉｎ@example.com",
            "admın@example.com",
            "аdmin@example.com",
            "admin@exаmple.com",
            "Admin@Example.com",
        ] {
            assert_eq!(skeleton(same), "admin@example.com", "{same}");
        }
        assert_ne!(skeleton("josé@example.com"), skeleton("jose@example.com"));
        assert_ne!(skeleton("ada@bücher.example"), skeleton("ada@bucher.example"));
    }

    proptest! {
        #[test]
        fn an_ascii_address_is_its_own_skeleton(key in "[a-z0-9.]{1,9}@[a-z0-9]{1,9}[.]com") {
            prop_assert_eq!(EmailKey(key.clone()).skeleton(), key);
        }

        #[test]
        fn a_key_normalizes_to_itself_and_contains_no_control_character(text in "\\PC{0,40}@?\\PC{0,40}") {
            if let Ok(email) = text.parse::<Email>() {
                let key = email.key().as_str().to_owned();
                prop_assert!(!key.contains(char::is_control));
                prop_assert_eq!(EmailKey::from_typed(&key), email.key);
            }
        }
    }
}
