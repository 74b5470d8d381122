//! Settings with several sources. The first one that is present wins: option, variable, context, default. A context is about
//! one service: with another base URL, its tenant and its CA file do not apply.

use crate::framework::configuration::ContextName;
use std::fmt;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The global option with this id.
    Option(&'static str),
    /// The variable of the global option with this id.
    Variable(&'static str),
    /// The context with this name.
    Context(ContextName),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(id) => write!(f, "--{}", id.replace('_', "-")),
            Self::Variable(id) => write!(f, "SVC_{}", id.to_uppercase()),
            Self::Context(name) => write!(f, "context {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}
