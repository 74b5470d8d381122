//! Commands about the client itself: `svc version`, `svc config`, `svc completion` and `svc catalog`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{
    self, Document, Errors, Examples, Names, Requirement, SchemaOf, document, format_schema,
    validation_errors,
};
use crate::commands::{Command, group};
use crate::context::Context;
use crate::credentials::CredentialStore;
use crate::error::{ErrorKind, Result};
use crate::help;
use crate::output::{CommandOutput, Table};

/// Print the versions of the client and its command catalog.
#[derive(Args)]
pub(crate) struct Version {}

/// Versions of the client.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClientVersion {
    /// Version of the client.
    version: &'static str,
    /// Version of the command catalog. A new major version means that commands or options were removed.
    catalog_version: &'static str,
}

impl CommandOutput for ClientVersion {
    fn table(&self) -> Table {
        Table::fields([
            ("svc", Some(self.version.to_owned())),
            ("catalog", Some(self.catalog_version.to_owned())),
        ])
    }
}

impl Command for Version {
    type Output = ClientVersion;

    const REQUIRES: Requirement = Requirement::Nothing;
    const EXAMPLES: Examples = &[("Print the versions", "svc version")];
    const AGENT_NOTES: &'static str = "Works offline. Does not print the version of the service.";
    const SEE_ALSO: Names = &["catalog show"];

    async fn run(self, context: &Context) -> Result<()> {
        context
            .out()
            .print(&ClientVersion { version: env!("CARGO_PKG_VERSION"), catalog_version: catalog::VERSION })
    }
}

group!(
    /// Show the configuration of this client.
    Config {
        Path(PathCommand),
    }
);

/// Print the paths of the client's files.
#[derive(Args)]
pub(crate) struct PathCommand {}

/// Paths of the client's files, which may not exist.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConfigPaths {
    /// Configuration directory.
    directory: String,
    /// Credentials file.
    credentials: String,
}

impl CommandOutput for ConfigPaths {
    fn table(&self) -> Table {
        Table::fields([
            ("directory", Some(self.directory.clone())),
            ("credentials", Some(self.credentials.clone())),
        ])
    }
}

impl Command for PathCommand {
    type Output = ConfigPaths;

    const REQUIRES: Requirement = Requirement::ConfigDirectory;
    const EXAMPLES: Examples = &[("Print where sessions are stored", "svc config path")];
    const AGENT_NOTES: &'static str = "Works offline. On Unix, XDG_CONFIG_HOME changes the directory.";
    const SEE_ALSO: Names = &["auth status"];

    async fn run(self, context: &Context) -> Result<()> {
        let store = CredentialStore::for_current_user()?;
        context.out().print(&ConfigPaths {
            directory: store.directory().display().to_string(),
            credentials: store.path().display().to_string(),
        })
    }
}

/// Print a shell completion script.
#[derive(Args)]
pub(crate) struct Completion {
    /// Shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A completion script.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompletionScript {
    /// Shell.
    shell: String,
    /// Script.
    script: String,
}

impl CommandOutput for CompletionScript {
    fn table(&self) -> Table {
        Table::text(&self.script)
    }
}

impl Command for Completion {
    type Output = CompletionScript;

    const REQUIRES: Requirement = Requirement::Nothing;
    const EXAMPLES: Examples = &[
        ("Print the completion script for bash", "svc completion bash"),
        ("Print the completion script for zsh", "svc completion zsh"),
    ];
    const AGENT_NOTES: &'static str = "Works offline. Only useful in an interactive shell.";
    const SEE_ALSO: Names = &["catalog show"];

    async fn run(self, context: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(context.tree()), "svc", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        context.out().print(&CompletionScript { shell: self.shell.to_string(), script })
    }
}

group!(
    /// Show and validate the command catalog.
    Catalog {
        Show(Show),
        Validate(Validate),
    }
);

/// Print the command catalog as JSON.
#[derive(Args)]
pub(crate) struct Show {}

impl CommandOutput for Document {
    fn table(&self) -> Table {
        match serde_json::to_string_pretty(self) {
            Ok(text) => Table::text(&text),
            // Strings, numbers and maps with string keys always serialize.
            Err(_) => Table::empty(),
        }
    }
}

impl Command for Show {
    type Output = Document;

    const REQUIRES: Requirement = Requirement::Nothing;
    const EXAMPLES: Examples = &[("Print the catalog", "svc catalog show --output json")];
    const AGENT_NOTES: &'static str = "Works offline. Replaces the help of all commands.";
    const SEE_ALSO: Names = &["catalog validate", "version"];

    async fn run(self, context: &Context) -> Result<()> {
        context.out().print(&document(context.tree()))
    }
}

/// Validate a command catalog against the JSON Schema of the format.
#[derive(Args)]
pub(crate) struct Validate {
    /// Catalog file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Result of validating a catalog.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ValidatedCatalog {
    /// Always true; an invalid catalog is an error.
    valid: bool,
    /// Number of commands.
    commands: usize,
}

impl CommandOutput for ValidatedCatalog {
    fn table(&self) -> Table {
        Table::text(&format!("The catalog is valid ({} commands).", self.commands))
    }
}

impl Command for Validate {
    type Output = ValidatedCatalog;

    const REQUIRES: Requirement = Requirement::Nothing;
    const ERRORS: Errors = &[ErrorKind::InputUnreadable, ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[("Validate a catalog", "svc catalog validate catalog/svc.catalog.json")];
    const AGENT_NOTES: &'static str = "Works offline. The error message lists each violation with its JSON \
        Pointer.";
    const SEE_ALSO: Names = &["catalog show"];
    const INPUT_SCHEMA: Option<SchemaOf> = Some(format_schema);

    async fn run(self, context: &Context) -> Result<()> {
        let path = self.file.display();
        let text = std::fs::read(&self.file)
            .map_err(|error| ErrorKind::InputUnreadable.with_message(format!("{path}: {error}")))?;
        let catalog: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| ErrorKind::InputInvalid.with_message(format!("{path} is not JSON: {error}")))?;
        let errors = validation_errors(&catalog)?;
        if !errors.is_empty() {
            let message = format!("{path} is not a valid command catalog:\n  {}", errors.join("\n  "));
            return Err(ErrorKind::InputInvalid.with_message(message));
        }
        let commands = catalog["commands"].as_array().map_or(0, Vec::len);
        context.out().print(&ValidatedCatalog { valid: true, commands })
    }
}
