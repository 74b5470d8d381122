//! The settings of a run.

use std::path::PathBuf;

use tenancy::TenantId;

use super::Context;
use crate::framework::arguments::Format;
use crate::framework::configuration::{ContextName, NamedContext};
use crate::framework::endpoint::{BaseUrl, DEFAULT_BASE_URL};
use crate::framework::environment;
use crate::framework::error::Result;
use crate::framework::settings::{Origin, Setting};

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
        self.setting("tenant", self.tenant_option(), |context| context.tenant.as_ref())
    }

    /// File of CA certificates, if one is set.
    pub(crate) fn ca_file_setting(&self) -> Result<Option<Setting<PathBuf>>> {
        self.setting("ca_file", self.globals().ca_file.as_ref(), |context| context.ca_file.as_ref())
    }

    /// Value of the global option with this id, else of the named context, if the context is about the service.
    fn setting<T: Clone>(
        &self,
        id: &'static str,
        option: Option<&T>,
        of_context: impl Fn(&NamedContext) -> Option<&T>,
    ) -> Result<Option<Setting<T>>> {
        if let Some(value) = option {
            return Ok(Some(Setting { value: value.clone(), origin: self.origin_of(id) }));
        }
        let Some((name, context)) = self.named_context()? else { return Ok(None) };
        if !context.is_about(&self.base_url()?.value) {
            return Ok(None);
        }
        let origin = Origin::Context(name.clone());
        Ok(of_context(context).cloned().map(|value| Setting { value, origin }))
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
