//! Named contexts: the services and tenants that a user works with, and which of them is current. `svc auth login` and
//! `svc config` change them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{TenantId, serde_as_text};

use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::files::Document;

/// Name of a context: up to 100 letters, digits and `._:@[]-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
pub(crate) struct ContextName(String);

impl ContextName {
    /// Name of the context that `svc config set` creates if no context is current.
    pub(crate) fn first() -> Self {
        Self("default".to_owned())
    }
}

impl FromStr for ContextName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._:@[]-".contains(c);
        if (1..=100).contains(&text.len()) && text.chars().all(is_allowed) && !text.starts_with('-') {
            Ok(Self(text.to_owned()))
        } else {
            Err("a context name has 1 to 100 letters, digits and ._:@[]- and does not start with -"
                .to_owned())
        }
    }
}

serde_as_text!(ContextName);

impl fmt::Display for ContextName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A context. Values that are absent have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedContext {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<BaseUrl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<TenantId>,
    /// Absolute path of a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Fields of a later version, which are kept.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl NamedContext {
    /// Returns whether the context is about this service. One without a base URL is about any service.
    pub(crate) fn is_about(&self, service: &BaseUrl) -> bool {
        self.base_url.as_ref().is_none_or(|own| own == service)
    }
}

/// Where a login stores its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CredentialStore {
    /// The keyring if it can be used, else the file.
    #[default]
    Auto,
    File,
    Keyring,
}

/// Content of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current_context: Option<ContextName>,
    /// Absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credential_store: Option<CredentialStore>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<ContextName, NamedContext>,
    /// Fields of a later version, which are kept.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl Document for Configuration {
    const FILE: &'static str = "config.json";
    const IS_SECRET: bool = false;
    const ERROR: ErrorKind = ErrorKind::ConfigurationInvalid;
}

impl Configuration {
    /// Name of the current context.
    pub(crate) fn current(&self) -> Option<&ContextName> {
        self.current_context.as_ref()
    }

    /// Context with this name.
    pub(crate) fn get(&self, name: &ContextName) -> Result<&NamedContext> {
        self.contexts.get(name).ok_or_else(|| unknown_context(name))
    }

    /// Context with this name, for a change. A new one is created; the first one becomes current.
    pub(crate) fn get_or_create(&mut self, name: &ContextName) -> &mut NamedContext {
        if self.current_context.is_none() {
            self.current_context = Some(name.clone());
        }
        self.contexts.entry(name.clone()).or_default()
    }

    /// Makes a context current. Returns the name of the previous one.
    pub(crate) fn make_current(&mut self, name: &ContextName) -> Result<Option<ContextName>> {
        self.get(name)?;
        Ok(self.current_context.replace(name.clone()))
    }

    /// Deletes a context. If it is current, there is no current context any more.
    pub(crate) fn delete(&mut self, name: &ContextName) -> Result<NamedContext> {
        let deleted = self.contexts.remove(name).ok_or_else(|| unknown_context(name))?;
        self.current_context.take_if(|current| current == name);
        Ok(deleted)
    }

    /// Makes the context of a login current, which may not exist yet.
    pub(crate) fn record_login(
        &mut self,
        name: &ContextName,
        service: &BaseUrl,
        tenant: &TenantId,
        ca_file: Option<PathBuf>,
    ) {
        let context = self.contexts.entry(name.clone()).or_default();
        if !context.is_about(service) {
            context.ca_file = None;
        }
        context.base_url = Some(service.clone());
        context.tenant = Some(tenant.clone());
        if ca_file.is_some() {
            context.ca_file = ca_file;
        }
        self.current_context = Some(name.clone());
    }

    /// Name of the context of a login to this service and tenant, which may not exist yet. A context in which another account is
    /// logged in is not used (`is_of_other`).
    pub(crate) fn name_for(
        &self,
        service: &BaseUrl,
        tenant: &TenantId,
        email: &str,
        is_of_other: impl Fn(&ContextName) -> bool,
    ) -> ContextName {
        let is_free = |context: &NamedContext| {
            context.is_about(service) && context.tenant.as_ref().is_none_or(|own| own == tenant)
        };
        let current = self.current_context.iter().filter_map(|name| self.contexts.get_key_value(name));
        let existing = self.contexts.iter().filter(|(_, context)| {
            context.base_url.as_ref() == Some(service) && context.tenant.as_ref() == Some(tenant)
        });
        let mut usable = current.filter(|(_, context)| is_free(context)).chain(existing.clone());
        if let Some((name, _)) = usable.find(|(name, _)| !is_of_other(name)) {
            return name.clone();
        }
        let account = email.split('@').next().unwrap_or_default();
        let names = match existing.count() {
            0 => [tenant.to_string(), format!("{tenant}@{}", service.authority())],
            _ => [account.to_owned(), format!("{account}@{tenant}")],
        };
        let numbered = (2_u32..).map(|number| format!("{tenant}-{number}"));
        let mut candidates =
            names.into_iter().chain(numbered).filter_map(|name| name.parse::<ContextName>().ok());
        let is_taken = |name: &ContextName| self.contexts.contains_key(name) || is_of_other(name);
        candidates.find(|name| !is_taken(name)).unwrap_or_else(ContextName::first)
    }
}

fn unknown_context(name: &ContextName) -> CliError {
    ErrorKind::ConfigurationInvalid
        .with_message(format!("no context is named {name}"))
        .with_remediation(
            "Correct or unset --context (SVC_CONTEXT). `svc config list` lists the contexts, and `svc auth login` creates one.",
        )
}

/// Reads and writes a configuration file; `None` if it is invalid.
#[cfg(fuzzing)]
pub fn fuzzed(file: &[u8]) -> Option<String> {
    let configuration: Configuration = serde_json::from_slice(file).ok()?;
    serde_json::to_string(&configuration).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn login(configuration: &mut Configuration, named: Option<&str>, url: &str, tenant: &str) -> String {
        let named: Option<ContextName> = named.map(|name| name.parse().unwrap());
        let (service, tenant) = (BaseUrl::parse(url).unwrap(), tenant.parse().unwrap());
        let name = named.unwrap_or_else(|| configuration.name_for(&service, &tenant, "ada@x", |_| false));
        configuration.record_login(&name, &service, &tenant, None);
        name.to_string()
    }

    #[test]
    fn a_login_creates_one_context_per_service_and_tenant() {
        let mut all = Configuration::default();
        for (url, tenant, name) in [
            ("http://127.0.0.1:8080", "acme", "acme"),
            ("http://127.0.0.1:8080", "umbrella", "umbrella"),
            ("https://svc.example", "acme", "acme@svc.example"),
            ("https://svc.example/second", "acme", "acme-2"),
            ("http://127.0.0.1:8080", "acme", "acme"),
            ("https://svc.example", "acme", "acme@svc.example"),
        ] {
            assert_eq!(login(&mut all, None, url, tenant), name);
            assert_eq!(all.current().unwrap().to_string(), name);
        }
        assert_eq!(all.contexts.len(), 4);
    }

    #[test]
    fn a_login_completes_the_current_context() {
        let mut all = Configuration::default();
        let production: ContextName = "production".parse().unwrap();
        all.get_or_create(&production).base_url = Some(BaseUrl::parse("https://svc.example").unwrap());
        assert_eq!(login(&mut all, None, "https://svc.example", "acme"), "production");
        assert_eq!(login(&mut all, None, "https://svc.example", "acme"), "production");
        assert_eq!(login(&mut all, None, "https://svc.example", "umbrella"), "umbrella");
        assert_eq!(login(&mut all, Some("production"), "https://other.example", "umbrella"), "production");
        assert_eq!(
            all.get(&production).unwrap().base_url.as_ref().unwrap().as_str(),
            "https://other.example"
        );
    }

    #[test]
    fn another_account_gets_its_own_context() {
        let mut all = Configuration::default();
        login(&mut all, None, "https://svc.example", "acme");
        let (service, tenant) = (BaseUrl::parse("https://svc.example").unwrap(), "acme".parse().unwrap());
        let acme: ContextName = "acme".parse().unwrap();
        let name = |email| all.name_for(&service, &tenant, email, |name| *name == acme).to_string();
        assert_eq!(name("chloe@acme.example"), "chloe");
        assert_eq!(name("chloe o'neil@acme.example"), "acme-2");
        assert_eq!(all.name_for(&service, &tenant, "ada@x", |_| false), acme);
    }

    #[test]
    fn without_its_context_nothing_is_current() {
        let mut all = Configuration::default();
        login(&mut all, Some("a"), "http://127.0.0.1:8080", "acme");
        login(&mut all, Some("b"), "http://127.0.0.1:8080", "umbrella");
        let a = "a".parse().unwrap();
        assert_eq!(all.make_current(&a).unwrap().unwrap().to_string(), "b");
        all.delete(&a).unwrap();
        assert_eq!(all.current(), None);
        assert_eq!(all.make_current(&a).unwrap_err().code, "configuration_invalid");
    }

    proptest! {
        #[test]
        fn a_login_names_a_valid_context(host in "[a-z0-9]{1,60}\\.example(:[1-9][0-9]{3})?", tenant in "[a-z0-9]{1,63}") {
            let mut all = Configuration::default();
            login(&mut all, Some(&tenant), "https://other.example", "other");
            let name = login(&mut all, None, &format!("https://{host}"), &tenant);
            let text = serde_json::to_string(&all).unwrap();
            let read: Configuration = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.current().unwrap().to_string(), name);
        }
    }
}
