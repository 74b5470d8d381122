//! AccountRef a command acts as: a credential of the environment, else the session that a login has left.

use contract::Secret;
use tenancy::{TenantId, UserId};

use super::{Context, stored};
use crate::environment::{self, API_KEY, PLATFORM_TOKEN, TOKEN};
use crate::error::{Fault, Result};

/// A credential and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The credential itself.
    pub(crate) bearer: Secret,
    /// The variable that holds it; none for a stored session.
    pub(crate) variable: Option<&'static str>,
    /// Whose session it is, where it was stored by a login.
    pub(crate) user: Option<UserId>,
    /// The tenant to name beside it, where one was asked for: the service then refuses a credential of another.
    pub(crate) tenant: Option<TenantId>,
}

impl Context {
    /// The credential to act with.
    pub(crate) fn caller(&self) -> Result<Caller> {
        for variable in [TOKEN, API_KEY] {
            if let Some(bearer) = environment::secret(variable)? {
                return Ok(self.holding(bearer, variable));
            }
        }
        self.stored_session()
    }

    /// The session to act with. An API key is none.
    pub(crate) fn session(&self) -> Result<Caller> {
        match environment::secret(TOKEN)? {
            Some(bearer) => Ok(self.holding(bearer, TOKEN)),
            None => self.stored_session(),
        }
    }

    /// The operator.
    pub(crate) fn operator(&self) -> Result<Caller> {
        let bearer =
            environment::secret(PLATFORM_TOKEN)?.ok_or_else(|| Fault::PlatformTokenMissing.bare())?;
        Ok(self.holding(bearer, PLATFORM_TOKEN))
    }

    /// For routes that the operator may use too: a credential of the environment, else the stored session.
    pub(crate) async fn caller_or_platform_admin(&self) -> Result<Caller> {
        let named_otherwise =
            environment::secret(TOKEN)?.is_some() || environment::secret(API_KEY)?.is_some();
        if named_otherwise || environment::secret(PLATFORM_TOKEN)?.is_none() {
            return self.caller();
        }
        // The operator belongs to no tenant, so the service must be told which one is meant.
        Ok(Caller { tenant: Some(self.tenant().await?), ..self.operator()? })
    }

    fn holding(&self, bearer: Secret, variable: &'static str) -> Caller {
        Caller { bearer, variable: Some(variable), user: None, tenant: self.named_tenant().cloned() }
    }

    fn stored_session(&self) -> Result<Caller> {
        let (service, all) = (self.service()?, stored()?);
        let tenant = self.named_tenant().or_else(|| all.current_tenant(service));
        let tenant =
            tenant.ok_or_else(|| Fault::NotLoggedIn.because(format!("no login to {service} is stored")))?;
        let session = all.session(service, tenant).ok_or_else(|| {
            Fault::NotLoggedIn.because(format!("no login to tenant {tenant} of {service} is stored"))
        })?;
        Ok(Caller {
            bearer: session.token.clone(),
            variable: None,
            user: Some(session.user_id),
            tenant: Some(tenant.clone()),
        })
    }
}
