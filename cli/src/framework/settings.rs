//! Settings with several sources. The first one that is present wins: option, variable, context, default. A context is about
//! one service: with another base URL, its tenant and its CA file do not apply.

use std::fmt;
use std::path::PathBuf;

use tenancy::TenantId;

use crate::arguments::Format;
use crate::context::Context;
use crate::contexts::{ContextName, NamedContext};
use crate::endpoint::{BaseUrl, DEFAULT_BASE_URL};
use crate::environment;
use crate::error::Result;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The global option with this id.
    Option(&'static str),
    /// The variable of the global option with this id.
    Variable(&'static str),
    /// The context with this name.
    Context(ContextName),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(id) => write!(f, "--{}", id.replace('_', "-")),
            Self::Variable(id) => write!(f, "SVC_{}", id.to_uppercase()),
            Self::Context(name) => write!(f, "context {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl Context {
    /// The named context in use: that of `--context` or `SVC_CONTEXT`, else the current one.
    pub(crate) fn named_context(&self) -> Result<Option<(&ContextName, &NamedContext)>> {
        let configuration = self.configuration()?;
        let name = self.globals().context.as_ref().or_else(|| configuration.current());
        name.map(|name| Ok((name, configuration.get(name)?))).transpose()
    }

    /// Base URL of the service.
    pub(crate) fn base_url(&self) -> Result<Setting<BaseUrl>> {
        if let Some(url) = &self.globals().base_url {
            return Ok(Setting { value: BaseUrl::parse(url)?, origin: self.origin_of("base_url") });
        }
        match self.named_context()? {
            Some((name, NamedContext { base_url: Some(url), .. })) => {
                Ok(Setting { value: url.clone(), origin: Origin::Context(name.clone()) })
            }
            _ => Ok(Setting { value: BaseUrl::parse(DEFAULT_BASE_URL)?, origin: Origin::Default }),
        }
    }

    /// Tenant, if one is set.
    pub(crate) fn tenant_setting(&self) -> Result<Option<Setting<TenantId>>> {
        if let Some(tenant) = self.tenant_option() {
            return Ok(Some(Setting { value: tenant.clone(), origin: self.origin_of("tenant") }));
        }
        self.of_context(|context| context.tenant.clone())
    }

    /// File of CA certificates, if one is set.
    pub(crate) fn ca_file_setting(&self) -> Result<Option<Setting<PathBuf>>> {
        if let Some(path) = &self.globals().ca_file {
            return Ok(Some(Setting { value: path.clone(), origin: self.origin_of("ca_file") }));
        }
        self.of_context(|context| context.ca_file.clone())
    }

    /// Value of the named context, if the context is about the service.
    fn of_context<T>(&self, value: impl Fn(&NamedContext) -> Option<T>) -> Result<Option<Setting<T>>> {
        let Some((name, context)) = self.named_context()? else { return Ok(None) };
        if !context.is_about(&self.base_url()?.value) {
            return Ok(None);
        }
        Ok(value(context).map(|value| Setting { value, origin: Origin::Context(name.clone()) }))
    }

    /// Output format.
    pub(crate) fn output_setting(&self) -> Setting<Format> {
        let value = self.globals().output;
        let is_default = !self.globals().is_given("output") && environment::text("SVC_OUTPUT").is_none();
        Setting { value, origin: if is_default { Origin::Default } else { self.origin_of("output") } }
    }

    /// Option or variable with the value of a global option.
    pub(crate) fn origin_of(&self, id: &'static str) -> Origin {
        if self.globals().is_given(id) { Origin::Option(id) } else { Origin::Variable(id) }
    }
}
