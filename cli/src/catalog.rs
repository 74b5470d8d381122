//! The command catalog: what clap knows of each command, and what its overlay adds, in the fixed format of version 1.

mod build;
mod format;
mod overlay;
#[cfg(test)]
mod tests;

pub(crate) use build::{document, leaves};
pub(crate) use format::{Document, faults_of, format_schema};
pub(crate) use overlay::{Access, Failure, Group, Overlay, schema_of};

/// Version of this client's catalog. A command, option or argument that is taken away or renamed moves the major; one that
/// is added moves the minor.
pub(crate) const VERSION: &str = "1.3.0";
