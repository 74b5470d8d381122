//! Configuration from `SVC_` environment variables. A secret can also come from the file that `<NAME>_FILE` names. The process
//! follows the file of a [`Live`] secret.
//!
//! A service declares each variable once, in the struct that holds its value ([`variables!`](crate::variables)).
//! Parsing, `--check-config`, `docs/configuration.md` and the warning about unknown names use that declaration. All
//! errors are collected and reported at once.

mod live;
mod login;
mod reader;
mod setting;
mod table;

use std::collections::BTreeMap;
use std::fmt;

pub use live::{Live, Rotating};
pub use login::Login;
pub use reader::{Reader, parse_bytes, parse_duration, parse_http_url};
pub use setting::{Setting, Variables};
pub use table::{markdown, unknown_names};

/// Exit code after configuration errors (`EX_USAGE` of sysexits.h).
pub const EXIT_CONFIG: u8 = 64;

/// Declaration of one environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name with the prefix `SVC_`.
    pub name: &'static str,
    /// Unit or format of the value, for documentation and error messages.
    pub form: &'static str,
    /// Value of an unset variable, in the format of `form`. `None` if there is no fixed default.
    pub default: Option<&'static str>,
    /// Whether the value is redacted in output and can come from a file.
    pub secret: bool,
    /// Documentation of the variable.
    pub meaning: &'static str,
}

impl Variable {
    /// Declares a variable without a default. [`variables!`](crate::variables) adds the documentation.
    pub const fn new(name: &'static str, form: &'static str) -> Self {
        Self { name, form, default: None, secret: false, meaning: "" }
    }

    /// Sets the default.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Marks the value as secret.
    #[must_use]
    pub const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// Sets the documentation.
    #[must_use]
    pub const fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }
}

/// Snapshot of the environment variables.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns the environment of this process. Skips variables that are not UTF-8.
    #[expect(clippy::disallowed_methods, reason = "the only access to the process environment")]
    pub fn from_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
        )
    }

    /// Creates an environment from name and value pairs.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// Adds variables. They override existing ones, including `<NAME>_FILE` of the same name.
    #[must_use]
    pub fn with<K: Into<String>, V: Into<String>>(mut self, pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        for (name, value) in pairs {
            let name = name.into();
            self.0.remove(&format!("{name}_FILE"));
            self.0.insert(name, value.into());
        }
        self
    }

    /// Returns the value of a variable. An empty value counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Iterates over the names of all variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// All errors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "invalid configuration:")?;
        self.0.iter().try_for_each(|error| writeln!(f, "  - {error}"))
    }
}
