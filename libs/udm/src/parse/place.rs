//! Where in an event a fault is, and the list of faults.

use std::borrow::Cow;
use std::fmt;

use contract::FieldError;

/// A sender that gets everything wrong needs no list of a thousand faults.
const MAX_FAULTS: usize = 16;

/// A place in an event; written out as a JSON Pointer (RFC 6901) only when something is wrong there.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    Root,
    Field(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(parent, name) => write!(f, "{parent}/{}", name.replace('~', "~0").replace('/', "~1")),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// The faults found so far.
#[derive(Default)]
pub(super) struct Faults(Vec<FieldError>);

impl Faults {
    pub(super) fn add(&mut self, at: &Place<'_>, code: &'static str, message: impl Into<String>) {
        if self.0.len() < MAX_FAULTS {
            self.0.push(FieldError {
                pointer: at.to_string(),
                code: Cow::Borrowed(code),
                message: message.into(),
            });
        }
    }

    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}
