//! Texts of pages and mails: one JSON file per language in `texts/`. A translation is a copy of `texts/en.json` and a line in
//! [`languages!`].

use std::collections::BTreeMap;
use std::str::FromStr;

use http::HeaderMap;
use http::header::{ACCEPT_LANGUAGE, COOKIE};

macro_rules! languages {
    ($($variant:ident = $tag:literal, $name:literal,)+) => {
        /// A shipped language.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Language { $($variant),+ }

        impl Language {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the language tag (RFC 5646).
            pub(crate) const fn tag(self) -> &'static str {
                match self { $(Self::$variant => $tag),+ }
            }

            /// Returns the name in the language itself.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            const fn file(self) -> &'static str {
                match self { $(Self::$variant => include_str!(concat!("../texts/", $tag, ".json"))),+ }
            }
        }
    };
}

languages! {
    English = "en", "English",
    German = "de", "Deutsch",
}

/// The cookie with the language that a person chose.
const COOKIE_NAME: &str = "svc_language";

impl FromStr for Language {
    type Err = &'static str;

    fn from_str(tag: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().copied().find(|language| language.tag().eq_ignore_ascii_case(tag));
        known.ok_or("unknown language")
    }
}

impl Language {
    /// Returns the language that the person chose, or that the client prefers (RFC 9110, section 12.5.4), or the default if it
    /// accepts no shipped one. Compares primary tags only: `de-AT` selects German.
    pub(crate) fn from_headers(headers: &HeaderMap, default: Self) -> Self {
        Self::from_cookie(headers).unwrap_or_else(|| Self::accepted(headers, default))
    }

    /// Returns the value of `Set-Cookie` that keeps the language for a year.
    pub(crate) fn cookie(self, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        format!("{COOKIE_NAME}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax{secure}", self.tag())
    }

    fn from_cookie(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies =
            values.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.split_once('='));
        cookies.find_map(|(name, value)| (name.trim() == COOKIE_NAME).then(|| value.trim().parse().ok())?)
    }

    fn accepted(headers: &HeaderMap, default: Self) -> Self {
        let values = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
        let ranges = values.flat_map(|value| value.split(',')).filter_map(|range| {
            let (tag, weight) = range.split_once(';').unwrap_or((range, "q=1"));
            let weight: f32 =
                weight.trim().strip_prefix("q=")?.parse().ok().filter(|weight| *weight > 0.0)?;
            let primary = tag.trim().split('-').next()?;
            let language = if primary == "*" { default } else { primary.parse().ok()? };
            Some((language, weight))
        });
        // The first one of equal weights.
        let best = ranges.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map_or(default, |(language, _)| language)
    }
}

/// The texts of a language.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    pub(crate) language: Language,
    by_key: BTreeMap<String, String>,
}

impl Texts {
    /// Loads the texts and replaces placeholders such as `{product}` in all of them.
    ///
    /// # Errors
    /// The file is not a JSON object of strings. A test reads every file.
    pub(crate) fn load(language: Language, values: &[(&str, &str)]) -> Result<Self, serde_json::Error> {
        let mut by_key: BTreeMap<String, String> = serde_json::from_str(language.file())?;
        for text in by_key.values_mut() {
            *text = filled(text, values);
        }
        Ok(Self { language, by_key })
    }

    /// Returns a text. A test checks that no key is missing; if one is, the key is shown.
    pub(crate) fn get<'a>(&'a self, key: &'a str) -> &'a str {
        self.by_key.get(key).map_or(key, String::as_str)
    }

    /// Returns the texts with one of the prefixes.
    pub(crate) fn with_prefixes(&self, prefixes: &[&str]) -> BTreeMap<&str, &str> {
        let texts = self.by_key.iter().map(|(key, text)| (key.as_str(), text.as_str()));
        texts.filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix))).collect()
    }
}

/// Replaces placeholders such as `{tenant}` by their values.
pub(crate) fn filled(text: &str, values: &[(&str, &str)]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    // One pass, so that a value that contains a placeholder is not replaced.
    while let Some((before, after)) = rest.split_once('{') {
        result.push_str(before);
        let known = after.split_once('}').and_then(|(name, tail)| {
            let (_, value) = values.iter().find(|(known, _)| *known == name)?;
            Some((value, tail))
        });
        if let Some((value, tail)) = known {
            result.push_str(value);
            rest = tail;
        } else {
            result.push('{');
            rest = after;
        }
    }
    result.push_str(rest);
    result
}

/// Reads the language of a request with these headers.
#[cfg(fuzzing)]
pub fn fuzzed(headers: &HeaderMap) -> &'static str {
    Language::from_headers(headers, Language::English).tag()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use contract::{ProblemKind, routes};

    use super::*;
    use crate::message::FactorChange;

    fn keys(language: Language) -> BTreeSet<String> {
        Texts::load(language, &[]).unwrap().by_key.into_keys().collect()
    }

    /// The content of the files that use texts: templates, scripts and Rust.
    fn sources(directory: &Path) -> String {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        entries.map(|path| if path.is_dir() { sources(&path) } else { read(&path) }).collect()
    }

    #[test]
    fn every_language_has_the_same_texts_with_the_same_placeholders() {
        let placeholders = |text: &str| -> BTreeSet<String> {
            text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.to_owned())).collect()
        };
        let english = Texts::load(Language::English, &[]).unwrap();
        for language in Language::ALL {
            let texts = Texts::load(*language, &[]).unwrap();
            assert_eq!(keys(*language), keys(Language::English), "{language:?}");
            for (key, text) in &texts.by_key {
                assert!(!text.trim().is_empty(), "{language:?}: {key}");
                assert_eq!(placeholders(text), placeholders(english.get(key)), "{language:?}: {key}");
            }
        }
    }

    #[test]
    fn every_text_is_used_and_every_used_text_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources: String =
            ["src/http", "src/mail", "templates"].map(|path| sources(&root.join(path))).concat();
        // Codes of problems and login methods are part of the key.
        let is_derived = |key: &str| {
            ["problem.", "sessions.method.", "mail.factor."].iter().any(|start| key.starts_with(start))
        };
        let known = keys(Language::English);
        for key in known.iter().filter(|key| !is_derived(key)) {
            assert!(sources.contains(&format!("\"{key}\"")), "no page or mail uses {key}");
        }
        let used = ["text(\"", ": \"mail."].into_iter().flat_map(|start| {
            let prefix = start.rsplit('"').next().unwrap();
            sources
                .split(start)
                .skip(1)
                .map(move |rest| format!("{prefix}{}", rest.split('"').next().unwrap()))
        });
        for key in used {
            assert!(known.contains(&key), "{key} is not defined");
        }
        let of_factors: BTreeSet<_> =
            known.iter().filter(|key| key.starts_with("mail.factor.")).cloned().collect();
        let keys_of = |change: FactorChange| {
            ["lead", "title"].map(|part| format!("mail.factor.{}.{part}", change.as_str()))
        };
        assert_eq!(of_factors, FactorChange::ALL.into_iter().flat_map(keys_of).collect());
        for code in known.iter().filter_map(|key| key.strip_prefix("problem.")) {
            assert!(contract::ProblemKind::from_code(code).is_some(), "no problem has the code {code}");
        }
    }

    /// Problems that only an error of a page can cause, or that a page presents in its own way. They have a general text.
    const GENERAL: &[ProblemKind] = &[
        ProblemKind::MalformedJson,
        ProblemKind::MalformedEncoding,
        ProblemKind::HeaderMissing,
        ProblemKind::MediaType,
        ProblemKind::ContentEncoding,
        ProblemKind::TransferEncoding,
        ProblemKind::TenantMismatch,
        ProblemKind::InsufficientScope,
        ProblemKind::Forbidden,
        ProblemKind::MethodNotAllowed,
        // The end of a session of the page, a wrong code, or another account in this browser.
        ProblemKind::Unauthenticated,
        ProblemKind::NotFound,
        ProblemKind::SessionNotFound,
        // With the time to wait.
        ProblemKind::RateLimited,
    ];

    #[test]
    fn every_problem_that_a_page_can_get_has_a_text() {
        let known = keys(Language::English);
        for route in [
            &routes::INSPECT_INVITE,
            &routes::ACCEPT_INVITE,
            &routes::INSPECT_PASSWORD_RESET,
            &routes::CONFIRM_PASSWORD_RESET,
            &routes::REQUEST_PASSWORD_RESET,
            &routes::CHANGE_PASSWORD,
            &routes::LOG_IN,
            &routes::LOG_IN_ON_PAGE,
            &routes::USE_FACTOR,
            &routes::USE_FACTOR_ON_PAGE,
            &routes::START_PASSKEY_LOGIN,
            &routes::LOG_IN_WITH_PASSKEY,
            &routes::LOG_IN_WITH_PASSKEY_ON_PAGE,
            &routes::SET_UP_PASSKEY_AT_LOGIN,
            &routes::START_PASSKEY,
            &routes::ADD_PASSKEY,
            &routes::RENAME_PASSKEY,
            &routes::LIST_SESSIONS,
            &routes::REVOKE_SESSION,
            &routes::REVOKE_SESSIONS,
            &routes::LOG_OUT,
            &routes::INSPECT_DEVICE,
            &routes::DECIDE_DEVICE,
        ] {
            for kind in route.all_problems().iter().filter(|kind| !GENERAL.contains(kind)) {
                assert!(known.contains(&format!("problem.{}", kind.code())), "{}: {kind:?}", route.path);
            }
        }
    }

    #[test]
    fn the_client_selects_the_language() {
        for (accepted, expected) in [
            ("de-AT,de;q=0.9,en;q=0.8", Language::German),
            ("en-US,en;q=0.9,de;q=0.8", Language::English),
            ("fr, en; q=0.5, de;q=0.4", Language::English),
            ("de;q=0, en;q=0.1", Language::English),
            ("en;q=0.2, *;q=0.5", Language::German),
            ("fr", Language::German),
            ("de;q=x", Language::German),
            ("", Language::German),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_LANGUAGE, accepted.parse().unwrap())]);
            assert_eq!(Language::from_headers(&headers, Language::German), expected, "{accepted}");
        }
        assert_eq!(Language::from_headers(&HeaderMap::new(), Language::English), Language::English);
    }

    #[test]
    fn the_chosen_language_precedes_the_accepted_one() {
        for (cookie, expected) in [
            ("svc_language=de", Language::German),
            ("a=b; svc_language=de; c=d", Language::German),
            ("svc_language=xx", Language::English),
            ("other_svc_language=de", Language::English),
        ] {
            let headers = [(COOKIE, cookie.parse().unwrap()), (ACCEPT_LANGUAGE, "en".parse().unwrap())];
            assert_eq!(
                Language::from_headers(&HeaderMap::from_iter(headers), Language::German),
                expected,
                "{cookie}"
            );
        }
    }

    #[test]
    fn the_cookie_of_the_language_is_secure_with_https() {
        assert!(!Language::German.cookie(false).contains("Secure"));
        assert!(Language::German.cookie(true).ends_with("; SameSite=Lax; Secure"));
    }

    #[test]
    fn replaces_known_placeholders_once() {
        let values = [("a", "{b}"), ("b", "x")];
        assert_eq!(filled("{a} {b} {c} {", &values), "{b} x {c} {");
    }
}
