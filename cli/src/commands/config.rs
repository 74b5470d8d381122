//! `svc config`: this client's own files.

mod path;

use super::group;

group!(
    /// Where this client keeps its files.
    Config {
        Path(path::PathCommand),
    }
);
