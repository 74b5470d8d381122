//! The errors of an event and their locations.

use std::borrow::Cow;
use std::fmt;

use contract::{FieldError, escape_pointer_token};

use crate::fields::{Meaning, Object, Spelling, find};

/// Enough for a sender to correct an event; more would only enlarge the response.
const MAX_ERRORS: usize = 16;

/// A location in an event. It is formatted as a JSON Pointer (RFC 6901) only for an error.
#[derive(Clone, Copy)]
pub(super) enum Location<'p> {
    Root,
    Field(&'p Location<'p>, &'p str),
    Item(&'p Location<'p>, usize),
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(parent, name) => write!(f, "{parent}/{}", escape_pointer_token(name)),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// The errors found so far.
#[derive(Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds an error, unless there are [`MAX_ERRORS`].
    pub(super) fn add(&mut self, pointer: impl fmt::Display, code: &'static str, message: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            let (pointer, message) = (pointer.to_string(), message.into());
            self.0.push(FieldError { pointer, code: Cow::Borrowed(code), message });
        }
    }

    /// Adds the errors of a field that occurs twice.
    pub(super) fn add_duplicate(
        &mut self,
        name: &str,
        spellings: [Spelling; 2],
        object: Option<&'static Object>,
        at: &Location<'_>,
    ) {
        let Some(Meaning::Known(field, _)) = object.map(|object| find(object, name)) else {
            return self.add(Location::Field(at, name), "duplicate_field", "duplicate field");
        };
        let [first, second] = spellings.map(|spelling| Location::Field(at, field.spelled(spelling)));
        if spellings[0] == spellings[1] {
            return self.add(first, "duplicate_field", "duplicate field");
        }
        for (location, other) in [(first, second), (second, first)] {
            self.add(
                location,
                "duplicate_field",
                format!("the same field as {other}; send only one of them"),
            );
        }
    }

    /// Returns whether there is an error at this pointer.
    pub(super) fn has(&self, pointer: &str) -> bool {
        self.0.iter().any(|error| error.pointer == pointer)
    }

    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}
