//! Errors as one line of a log.

use std::error::Error;

/// An error and all its sources. Display of our errors never prints their source, so nothing is told twice.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
