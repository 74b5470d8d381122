//! Lines for the person at the terminal. A terminal that is gone is no reason to fail: the signal that says so comes
//! too, and the way to a clean end must not break off at a line that nobody reads.

use std::fmt::Display;
use std::io::{self, Write};

/// What was asked for: to standard output.
#[cfg(feature = "services")]
pub(crate) fn say(line: impl Display) {
    put(&mut io::stdout(), &line);
}

/// What else goes on: to standard error.
pub(crate) fn note(line: impl Display) {
    put(&mut io::stderr(), &line);
}

fn put(to: &mut dyn Write, line: &dyn Display) {
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
