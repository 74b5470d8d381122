//! The credential that a command uses: one of the environment, else the stored session.

use contract::session::Whoami;
use contract::{Secret, routes};
use tenancy::{TenantId, UserId};

use super::{Context, stored_credentials};
use crate::api::{Api, Call};
use crate::environment::{self, API_KEY, PLATFORM_TOKEN, TOKEN};
use crate::error::{ErrorKind, Result};

/// A credential and what the client knows about it.
#[derive(Clone, Debug)]
pub(crate) struct ActiveCredential {
    pub(crate) bearer: Secret,
    /// Variable that contains the credential; `None` for a stored session.
    pub(crate) variable: Option<&'static str>,
    /// User of a stored session.
    pub(crate) user: Option<UserId>,
    /// Tenant to send with the credential. The service rejects a credential of another tenant.
    pub(crate) tenant: Option<TenantId>,
}

/// User and tenant of a session.
pub(crate) struct SessionOwner {
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
}

impl Context {
    /// Session or API key to use.
    pub(crate) fn credential(&self) -> Result<ActiveCredential> {
        for variable in [TOKEN, API_KEY] {
            if let Some(bearer) = environment::secret(variable)? {
                return Ok(self.credential_from(bearer, variable));
            }
        }
        self.stored_session()
    }

    /// Session to use. Ignores API keys.
    pub(crate) fn session(&self) -> Result<ActiveCredential> {
        match environment::secret(TOKEN)? {
            Some(bearer) => Ok(self.credential_from(bearer, TOKEN)),
            None => self.stored_session(),
        }
    }

    /// Token of the platform administrator.
    pub(crate) fn platform_token(&self) -> Result<ActiveCredential> {
        let bearer = environment::secret(PLATFORM_TOKEN)?.ok_or(ErrorKind::PlatformTokenMissing)?;
        Ok(self.credential_from(bearer, PLATFORM_TOKEN))
    }

    /// Credential for routes that accept the platform token too. A session or API key of the environment takes
    /// precedence over the platform token, and the platform token over a stored session.
    pub(crate) async fn credential_or_platform_token(&self) -> Result<ActiveCredential> {
        let has_credential = environment::secret(TOKEN)?.is_some() || environment::secret(API_KEY)?.is_some();
        if has_credential || environment::secret(PLATFORM_TOKEN)?.is_none() {
            return self.credential();
        }
        // The platform administrator belongs to no tenant, so the request must name one.
        Ok(ActiveCredential { tenant: Some(self.tenant().await?), ..self.platform_token()? })
    }

    fn credential_from(&self, bearer: Secret, variable: &'static str) -> ActiveCredential {
        let tenant = self.tenant_option().cloned();
        ActiveCredential { bearer, variable: Some(variable), user: None, tenant }
    }

    fn stored_session(&self) -> Result<ActiveCredential> {
        let (service, stored) = (self.service()?, stored_credentials()?);
        let tenant = self
            .tenant_option()
            .or_else(|| stored.current_tenant(service))
            .ok_or_else(|| ErrorKind::NotLoggedIn.with_message(format!("not logged in to {service}")))?;
        let session = stored.session(service, tenant).ok_or_else(|| {
            ErrorKind::NotLoggedIn.with_message(format!("not logged in to tenant {tenant} of {service}"))
        })?;
        Ok(ActiveCredential {
            bearer: session.token.clone(),
            variable: None,
            user: Some(session.user_id),
            tenant: Some(tenant.clone()),
        })
    }
}

impl Call<'_> {
    /// Sends the credential, and its tenant if known.
    pub(crate) fn authenticated(self, credential: &ActiveCredential) -> Result<Self> {
        Ok(self.bearer(&credential.bearer)?.tenant(credential.tenant.as_ref()))
    }
}

impl ActiveCredential {
    /// User and tenant of the session. Asks the service about a token of the environment.
    pub(crate) async fn owner(&self, api: &Api) -> Result<SessionOwner> {
        if let (Some(tenant), Some(user)) = (self.tenant.clone(), self.user) {
            return Ok(SessionOwner { tenant, user });
        }
        let call = api.call(&routes::WHOAMI, &[]).authenticated(self)?;
        let Whoami { tenant_id: tenant, user_id, .. } = call.fetch().await?;
        match user_id {
            Some(user) => Ok(SessionOwner { tenant, user }),
            None => Err(ErrorKind::InputInvalid.with_message("the credential is not a user session")),
        }
    }
}
