//! Whose session a command acts with.

use contract::session::Whoami;
use reqwest::Method;
use tenancy::{TenantId, UserId};

use super::Caller;
use crate::api::Api;
use crate::error::{Fault, Result};

/// A user, and the tenant that they belong to.
pub(crate) struct Person {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The user.
    pub(crate) user: UserId,
}

impl Caller {
    /// Whose session it is. Of a token of the environment, only the service knows.
    pub(crate) async fn person(&self, api: &Api) -> Result<Person> {
        if let (Some(tenant), Some(user)) = (self.tenant.clone(), self.user) {
            return Ok(Person { tenant, user });
        }
        let call = api.call(Method::GET, "/auth/session").bearer(&self.bearer)?;
        let Whoami { tenant_id: tenant, user_id, .. } = call.tenant(self.tenant.as_ref()).fetch().await?;
        match user_id {
            Some(user) => Ok(Person { tenant, user }),
            None => Err(Fault::InputInvalid.because("the credential is no person's session")),
        }
    }
}
