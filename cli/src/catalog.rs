//! The command catalog: the clap definition of each command and its overlay, in the fixed format of version 1.

mod build;
mod format;
mod overlay;
#[cfg(test)]
mod tests;

pub(crate) use build::{document, leaves};
pub(crate) use format::{Document, format_schema, validation_errors};
pub(crate) use overlay::{HelpGroup, Overlay, Requirement, Routes, schema_of};

/// Version of the catalog of this client. Removing or renaming a command, option or argument requires a new major version;
/// adding one requires a new minor version.
pub(crate) const VERSION: &str = "1.3.0";

/// All commands of the client: their clap definition, and their overlays in the same order.
#[derive(Clone, Copy)]
pub(crate) struct CommandTree {
    pub(crate) command: fn() -> clap::Command,
    pub(crate) overlays: fn() -> Vec<Overlay>,
}
