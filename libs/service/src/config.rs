//! Configuration comes from `SVC_` variables of the environment, or for secrets from the file that `<NAME>_FILE` names.
//!
//! Each service declares its variables as data, so that the documentation, `--check-config` and the warning about
//! unknown names all come from one table. ConfigErrors are collected and reported at once.

mod document;
mod reader;
mod unit;
mod unknown;

use std::collections::BTreeMap;
use std::fmt;

pub use document::markdown;
pub use reader::Reader;
pub use unit::{parse_bytes, parse_duration};
pub use unknown::unknown_names;

/// The exit code of a process whose configuration is at fault (`EX_USAGE` of sysexits.h).
pub const EXIT_CONFIG: u8 = 64;

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, with the prefix.
    pub name: &'static str,
    /// Unit or form of its value.
    pub form: &'static str,
    /// What holds when it is not set, as it would be written; `None` when that is said by its meaning.
    pub default: Option<&'static str>,
    /// Whether its value is withheld wherever it is shown, and may come from a file.
    pub secret: bool,
    /// What it does.
    pub meaning: &'static str,
}

/// The environment, read once.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// This process's environment. Variables that are not UTF-8 are passed over.
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the environment")]
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
        )
    }

    /// An environment made up in code.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// The same with further variables, which win, also over a file of the same name.
    #[must_use]
    pub fn with<K: Into<String>, V: Into<String>>(mut self, pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        for (name, value) in pairs {
            let name = name.into();
            self.0.remove(&format!("{name}_FILE"));
            self.0.insert(name, value.into());
        }
        self
    }

    /// A variable's value. An empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The names of all variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the configuration cannot be used:")?;
        self.0.iter().try_for_each(|fault| writeln!(f, "  - {fault}"))
    }
}
