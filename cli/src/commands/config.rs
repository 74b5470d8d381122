//! `svc config`: settings and files of this client; `contexts` has its contexts.

mod contexts;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::TenantId;

use crate::framework::ca_file::CaFile;
use crate::framework::catalog::{Errors, Examples, Names, Requirement};
use crate::framework::command::{Command, group};
use crate::framework::configuration::{Configuration, ContextName, CredentialStore, NamedContext};
use crate::framework::context::Context;
use crate::framework::credential::Credential;
use crate::framework::credentials::Credentials;
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::files::Directory;
use crate::framework::output::{Cell, CommandOutput, Row, Table, optional, text};
use crate::framework::settings::{Origin, Setting};

pub(super) use contexts::warn_about_overrides;
use contexts::{DeleteContext, ListedContext, UseContext};

group!(
    /// Show and change settings and contexts.
    Config {
        List(List),
        Get(Get),
        Set(Set),
        Unset(Unset),
        UseContext(UseContext),
        DeleteContext(DeleteContext),
        Path(PathCommand),
    }
);

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    Context,
    BaseUrl,
    Tenant,
    CaFile,
    Output,
    CredentialStore,
    Credential,
}

impl Key {
    /// Effective value and its origin.
    fn read(self, context: &Context) -> Result<EffectiveSetting> {
        let setting = match self {
            Self::Context => context.named_context()?.map(|(name, _)| match context.globals().context {
                Some(_) => (name.to_string(), context.origin_of("context").to_string()),
                None => (name.to_string(), "current".to_owned()),
            }),
            Self::BaseUrl => Some(shown(&context.base_url()?)),
            Self::Tenant => context.tenant_setting()?.as_ref().map(shown),
            Self::CaFile => context
                .ca_file_setting()?
                .map(|setting| (setting.value.display().to_string(), setting.origin.to_string())),
            Self::Output => {
                let Setting { value, origin } = context.output_setting();
                Some((name(&value), origin.to_string()))
            }
            Self::CredentialStore => Some(match context.configuration()?.credential_store {
                Some(choice) => (name(&choice), "configuration file".to_owned()),
                None => (name(&CredentialStore::default()), Origin::Default.to_string()),
            }),
            Self::Credential => credential_in_use(context)?,
        };
        let (value, origin) = setting.unzip();
        Ok(EffectiveSetting { key: name(&self), value, origin })
    }
}

/// Name of a value, as the command line accepts it.
fn name<V: ValueEnum>(value: &V) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Name of the session or API key that commands use, else of the platform token, and what provides it.
fn credential_in_use(context: &Context) -> Result<Option<(String, String)>> {
    let absent = [ErrorKind::NotLoggedIn.code(), ErrorKind::PlatformTokenMissing.code()];
    for requirement in [Requirement::Credential, Requirement::PlatformToken] {
        match context.credential(requirement) {
            Ok(Credential { source, .. }) => {
                let origin = if source.variable().is_some() { "environment" } else { "svc auth login" };
                return Ok(Some((source.to_string(), origin.to_owned())));
            }
            Err(error) if absent.contains(&error.code.as_str()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn shown<T: ToString>(setting: &Setting<T>) -> (String, String) {
    (setting.value.to_string(), setting.origin.to_string())
}

/// A setting that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoredKey {
    BaseUrl,
    Tenant,
    CaFile,
    CredentialStore,
}

impl StoredKey {
    /// Sets or removes the value of a context. Returns the new and the previous value.
    fn write(self, context: &mut NamedContext, value: Option<&str>) -> Result<[Option<String>; 2]> {
        match self {
            // It belongs to no context.
            Self::CredentialStore => Ok([None, None]),
            Self::BaseUrl => replace(&mut context.base_url, value, BaseUrl::parse, BaseUrl::to_string),
            Self::Tenant => replace(&mut context.tenant, value, parse_tenant, TenantId::to_string),
            Self::CaFile => {
                replace(&mut context.ca_file, value, absolute_ca_file, |path| path.display().to_string())
            }
        }
    }
}

/// Sets or removes a value. Returns the new and the previous one as text.
fn replace<T>(
    place: &mut Option<T>,
    value: Option<&str>,
    parse: impl Fn(&str) -> Result<T>,
    text: impl Fn(&T) -> String,
) -> Result<[Option<String>; 2]> {
    let previous = std::mem::replace(place, value.map(parse).transpose()?);
    Ok([place.as_ref(), previous.as_ref()].map(|value| value.map(&text)))
}

fn parse_tenant(text: &str) -> Result<TenantId> {
    text.parse()
        .map_err(|error: tenancy::InvalidTenantId| ErrorKind::InputInvalid.with_message(error.to_string()))
}

/// Absolute path of a file that contains certificates.
fn absolute_ca_file(path: &str) -> Result<std::path::PathBuf> {
    let path = std::path::absolute(path)
        .map_err(|error| ErrorKind::InputInvalid.with_message(format!("{path}: {error}")))?;
    CaFile::read(&path, Origin::Option("ca_file"))?.certificates()?;
    Ok(path)
}

/// An effective setting.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EffectiveSetting {
    /// Name, as `svc config get` accepts it.
    key: String,
    /// Value in effect; null without one.
    value: Option<String>,
    /// What sets the value: an option, a variable, `context NAME`, `current` or `default`. Of a credential: `environment` or
    /// `svc auth login`.
    origin: Option<String>,
}

impl Row for EffectiveSetting {
    const EMPTY: &'static str = "No settings.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("SETTING", text(&self.key)),
            ("VALUE", optional(self.value.as_ref().map(text))),
            ("ORIGIN", text(self.origin.as_deref().unwrap_or("not set"))),
        ]
    }
}

/// List the effective settings and the contexts.
///
/// An option has precedence over its variable, and a variable over the context. A context is about one service: with another
/// base URL, its tenant and its CA file do not apply. An empty variable counts as unset.
#[derive(Args)]
pub(crate) struct List {}

/// Settings and contexts.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ListedConfiguration {
    /// Effective settings.
    settings: Vec<EffectiveSetting>,
    /// All contexts.
    contexts: Vec<ListedContext>,
}

impl CommandOutput for ListedConfiguration {
    fn table(&self) -> Table {
        Table::Sections(vec![Table::items(&self.settings), Table::items(&self.contexts)])
    }
}

impl Command for List {
    type Output = ListedConfiguration;

    const REQUIRES: Requirement = Requirement::CredentialsFile;
    const EXAMPLES: Examples =
        &[("Show which service, tenant and credential commands use", "svc config list")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. `origin` names what to change: an option, a variable \
        or a context.";
    const SEE_ALSO: Names = &["config set", "config use-context", "auth status"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        // A setting that cannot be read does not hide the others, which may be needed to correct it.
        let mut errors = Vec::new();
        let settings = Key::value_variants().iter().map(|key| {
            key.read(context).unwrap_or_else(|error| {
                errors.push(error.message);
                EffectiveSetting { key: name(key), value: None, origin: None }
            })
        });
        let settings = settings.collect();
        errors.dedup();
        for error in &errors {
            context.out().warn(error);
        }
        let (configuration, stored) = (context.configuration()?, Credentials::load()?);
        Ok(ListedConfiguration { settings, contexts: ListedContext::all(configuration, &stored) })
    }
}

/// Print the effective value of a setting.
#[derive(Args)]
pub(crate) struct Get {
    /// Setting.
    #[arg(value_name = "SETTING")]
    key: Key,
}

impl CommandOutput for EffectiveSetting {
    fn table(&self) -> Table {
        Table::text(self.value.as_deref().unwrap_or_default())
    }
}

impl Command for Get {
    type Output = EffectiveSetting;

    const REQUIRES: Requirement = Requirement::CredentialsFile;
    const EXAMPLES: Examples = &[("Print the base URL that commands use", "svc config get base-url")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. Prints nothing if the setting has no value.";
    const SEE_ALSO: Names = &["config list", "config set"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        self.key.read(context)
    }
}

/// Change a setting.
///
/// Changes the context of --context, else the current one. A context that does not exist is created; the first one becomes
/// current. `credential-store` is where later logins store their sessions: in the keyring (`keyring`), in a file that only you can
/// read (`file`), or in the keyring if it can be used, else in the file (`auto`).
#[derive(Args)]
pub(crate) struct Set {
    /// Setting.
    #[arg(value_name = "SETTING")]
    key: StoredKey,
    /// New value.
    value: String,
}

/// A changed setting.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangedSetting {
    /// Context; null for a setting of all contexts.
    context: Option<ContextName>,
    /// Setting.
    key: String,
    /// New value; null if it was removed.
    value: Option<String>,
    /// Previous value.
    previous: Option<String>,
}

impl CommandOutput for ChangedSetting {
    fn table(&self) -> Table {
        Table::fields([
            ("context", self.context.as_ref().map(text)),
            (&self.key, Some(text(self.value.as_deref().unwrap_or("not set")))),
            ("previously", Some(text(self.previous.as_deref().unwrap_or("not set")))),
        ])
    }
}

impl Command for Set {
    type Output = ChangedSetting;

    const REQUIRES: Requirement = Requirement::ConfigDirectory;
    const ERRORS: Errors = &[ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[
        ("Change the service of the current context", "svc config set base-url https://svc.example.com"),
        ("Create a context", "svc config set base-url https://svc.example.com --context production"),
        ("Trust a private certificate authority", "svc config set ca-file ca.pem"),
        ("Store sessions in the file", "svc config set credential-store file"),
    ];
    const AGENT_NOTES: &'static str = "Works offline. `previous` in the output is the value to undo the \
        change with.";
    const SEE_ALSO: Names = &["config list", "config unset", "config use-context"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        change(context, self.key, Some(&self.value))
    }
}

/// Remove a setting, so that its default applies.
///
/// Changes the context of --context, else the current one. `credential-store` belongs to no context.
#[derive(Args)]
pub(crate) struct Unset {
    /// Setting.
    #[arg(value_name = "SETTING")]
    key: StoredKey,
}

impl Command for Unset {
    type Output = ChangedSetting;

    const REQUIRES: Requirement = Requirement::ConfigDirectory;
    const EXAMPLES: Examples = &[("Trust the certificates of the system again", "svc config unset ca-file")];
    const AGENT_NOTES: &'static str = "Works offline. Idempotent.";
    const SEE_ALSO: Names = &["config set", "config delete-context"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        change(context, self.key, None)
    }
}

fn parse_credential_store(text: &str) -> Result<CredentialStore> {
    CredentialStore::from_str(text, false)
        .map_err(|_| ErrorKind::InputInvalid.with_message("credential-store is auto, file or keyring"))
}

/// Changes or removes a setting of the context of `--context`, else of the current one. Only a change creates the context.
fn change(context: &Context, key: StoredKey, value: Option<&str>) -> Result<ChangedSetting> {
    Directory::for_current_user()?.update(|configuration: &mut Configuration| {
        if key == StoredKey::CredentialStore {
            let store = &mut configuration.credential_store;
            let [value, previous] = replace(store, value, parse_credential_store, name)?;
            return Ok(ChangedSetting { context: None, key: name(&key), value, previous });
        }
        let named = context.globals().context.as_ref().or_else(|| configuration.current());
        let named = named.cloned().unwrap_or_else(ContextName::first);
        if value.is_none() {
            configuration.get(&named)?;
        }
        let [value, previous] = key.write(configuration.get_or_create(&named), value)?;
        Ok(ChangedSetting { context: Some(named), key: name(&key), value, previous })
    })
}

/// Print the paths of the client's files.
#[derive(Args)]
pub(crate) struct PathCommand {}

/// Paths of the client's files, which may not exist.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConfigPaths {
    /// Configuration directory.
    directory: String,
    /// Configuration file.
    configuration: String,
    /// Credentials file.
    credentials: String,
}

impl CommandOutput for ConfigPaths {
    fn table(&self) -> Table {
        Table::fields([
            ("directory", Some(text(&self.directory))),
            ("configuration", Some(text(&self.configuration))),
            ("credentials", Some(text(&self.credentials))),
        ])
    }
}

impl Command for PathCommand {
    type Output = ConfigPaths;

    const REQUIRES: Requirement = Requirement::ConfigDirectory;
    const EXAMPLES: Examples = &[("Print where settings and sessions are stored", "svc config path")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. On Unix, XDG_CONFIG_HOME changes the directory.";
    const SEE_ALSO: Names = &["config list", "auth status"];

    async fn run(self, _: &Context) -> Result<Self::Output> {
        let directory = Directory::for_current_user()?;
        Ok(ConfigPaths {
            directory: directory.path().display().to_string(),
            configuration: directory.path_of::<Configuration>().display().to_string(),
            credentials: directory.path_of::<Credentials>().display().to_string(),
        })
    }
}
