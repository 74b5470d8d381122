//! Tenants: create, read, list and change.

use audit::{AuditEvent, EventName};
use contract::identity::{
    CreateTenant, MAX_PASSWORD_MIN_LENGTH, MAX_QUOTA, PatchTenant, Quota, SecondFactorPolicy, Tenant,
};
use contract::{Page, ProblemKind, Role, TenantStatus, names};
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, TenantId};

use super::invites::Invitation;
use super::{App, Work, invalid};
use crate::domain::email::{Email, InvalidEmail};
use crate::message::Message;
use crate::store::tenant;

const MAX_NAME: usize = 200;

impl App {
    /// Creates a tenant, and the invite of its first administrator in the same transaction.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn create_tenant(&self, request: &CreateTenant) -> Result<Tenant, Problem> {
        let password_min_length = self.own_min_length(request.password_min_length)?;
        let mut tx = self.begin(&request.tenant_id, Actor::PlatformAdmin).await?;
        let tenant = tx.create_tenant(&CreateTenant { password_min_length, ..request.clone() }).await?;
        tx.commit().await?;
        Ok(self.effective(tenant))
    }

    /// Returns a tenant.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn find_tenant(&self, tenant_id: &TenantId) -> Result<Tenant, Problem> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        Ok(self.effective(tenant::find(&mut tx).await?.ok_or(ProblemKind::NotFound)?))
    }

    /// The minimum length of the installation applies to each tenant.
    fn effective(&self, tenant: Tenant) -> Tenant {
        let min_length = self.policy.for_tenant(tenant.password_min_length).min_length;
        Tenant { password_min_length: u32::try_from(min_length).unwrap_or(u32::MAX), ..tenant }
    }

    /// Returns a page of all tenants, for the platform administrator.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_tenants(&self, paging: &Paging<TenantId>) -> Result<Page<Tenant>, Problem> {
        let after = paging.after.as_ref().map_or("", TenantId::as_str);
        let tenants = tenant::list(&self.database, after, paging.rows()).await?;
        let tenants = tenants.into_iter().map(|tenant| self.effective(tenant)).collect();
        Ok(paging.page(tenants, |tenant| tenant.tenant_id.clone()))
    }

    /// Changes the fields that are present. A suspension revokes all sessions of the tenant, also after it is resumed.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn patch_tenant(
        &self,
        tenant_id: &TenantId,
        patch: &PatchTenant,
    ) -> Result<Tenant, Problem> {
        let password_min_length = self.own_min_length(patch.password_min_length)?;
        let mut tx = self.begin(tenant_id, Actor::PlatformAdmin).await?;
        match tx.change_tenant(&PatchTenant { password_min_length, ..patch.clone() }).await? {
            Some(changed) => {
                tx.commit().await?;
                Ok(self.effective(changed))
            }
            None => Ok(self.effective(tenant::find(&mut tx).await?.ok_or(ProblemKind::NotFound)?)),
        }
    }

    /// Returns the minimum length of passwords to store; 0 for that of the installation, which can change.
    fn own_min_length(&self, length: Option<u32>) -> Result<Option<u32>, Problem> {
        let min = u32::try_from(self.policy.min_length).unwrap_or(u32::MAX);
        if length.is_none_or(|length| (min..=MAX_PASSWORD_MIN_LENGTH).contains(&length)) {
            return Ok(length.map(|length| if length == min { 0 } else { length }));
        }
        let message =
            format!("must be {min} to {MAX_PASSWORD_MIN_LENGTH}; {min} is the minimum of the installation");
        Err(invalid("/password_min_length", message))
    }
}

impl Work<'_> {
    /// Creates the tenant of the transaction, and the invite of its first administrator. The minimum length of passwords is stored as it
    /// is.
    pub(super) async fn create_tenant(&mut self, request: &CreateTenant) -> Result<Tenant, Problem> {
        let name = valid_name(&request.display_name)?;
        let quota = request.quota.unwrap_or_default();
        validate_quota(&quota)?;
        let admin = request.admin_email.as_deref().map(str::parse::<Email>).transpose();
        let admin = admin.map_err(|error: InvalidEmail| invalid("/admin_email", error.to_string()))?;
        self.require_factor_key(request.second_factor)?;
        let tenant = Tenant {
            tenant_id: request.tenant_id.clone(),
            display_name: name.to_owned(),
            status: TenantStatus::Active,
            quota,
            second_factor: request.second_factor,
            password_min_length: request.password_min_length.unwrap_or(0),
            passkey_login: request.passkey_login.unwrap_or(true),
            created_at: self.now(),
            invite: None,
        };
        tenant::insert(self, &tenant).await.map_err(|error| {
            if error.violates(tenant::PRIMARY_KEY) {
                ProblemKind::TenantExists.into()
            } else {
                Problem::from(error)
            }
        })?;
        self.audit(AuditEvent::new(EventName::AuthzAdmin).about("tenant_created"));
        let invite = match admin {
            Some(email) => {
                let invitation = Invitation { email, role: Role::Admin, delivery: request.delivery };
                Some(self.invite(&invitation).await?)
            }
            None => None,
        };
        Ok(Tenant { invite, ..tenant })
    }

    /// Changes the fields that are present. The minimum length of passwords is stored as it is. Returns `None` if the tenant has these
    /// values already.
    pub(super) async fn change_tenant(&mut self, patch: &PatchTenant) -> Result<Option<Tenant>, Problem> {
        let name = patch.display_name.as_deref().map(valid_name).transpose()?;
        if let Some(quota) = &patch.quota {
            validate_quota(quota)?;
        }
        let found = tenant::find_for_update(self).await?.ok_or(ProblemKind::NotFound)?;
        let changed = Tenant {
            display_name: name.map_or_else(|| found.display_name.clone(), str::to_owned),
            status: patch.status.unwrap_or(found.status),
            quota: patch.quota.unwrap_or(found.quota),
            second_factor: patch.second_factor.unwrap_or(found.second_factor),
            password_min_length: patch.password_min_length.unwrap_or(found.password_min_length),
            passkey_login: patch.passkey_login.unwrap_or(found.passkey_login),
            ..found.clone()
        };
        let rule_changed = changed.second_factor != found.second_factor;
        let passkeys_changed = changed.passkey_login != found.passkey_login;
        let values = |tenant: &Tenant| {
            (tenant.display_name.clone(), tenant.status, tenant.quota, tenant.password_min_length)
        };
        let others_changed = values(&changed) != values(&found);
        if !rule_changed && !passkeys_changed && !others_changed {
            return Ok(None);
        }
        let suspends = changed.status == TenantStatus::Suspended && found.status == TenantStatus::Active;
        let about = match changed.status {
            status if status == found.status => "tenant_changed",
            TenantStatus::Suspended => "tenant_suspended",
            TenantStatus::Active => "tenant_resumed",
        };
        if rule_changed {
            self.require_factor_key(changed.second_factor)?;
            let about = match changed.second_factor {
                SecondFactorPolicy::Optional => "second_factor_optional",
                SecondFactorPolicy::Administrators => "second_factor_administrators",
                SecondFactorPolicy::Everyone => "second_factor_everyone",
            };
            self.audit(AuditEvent::new(EventName::AuthzAdmin).about(about));
        }
        if passkeys_changed {
            let about = if changed.passkey_login { "passkey_login_on" } else { "passkey_login_off" };
            self.audit(AuditEvent::new(EventName::AuthzAdmin).about(about));
        }
        tenant::update(self, &changed, suspends).await?;
        if others_changed {
            self.audit(AuditEvent::new(EventName::AuthzAdmin).about(about));
        }
        self.send(&Message::PushTenantStatus);
        Ok(Some(changed))
    }

    /// Without the key, the users could not set up the second factor that the tenant requires.
    fn require_factor_key(&self, policy: SecondFactorPolicy) -> Result<(), Problem> {
        if policy == SecondFactorPolicy::Optional || self.app.config.factor_keys.is_some() {
            return Ok(());
        }
        Err(ProblemKind::TotpUnavailable.into())
    }
}

/// Returns the name without surrounding white space.
fn valid_name(name: &str) -> Result<&str, Problem> {
    names::check(name, MAX_NAME).map_err(|message| invalid("/display_name", message))
}

fn validate_quota(quota: &Quota) -> Result<(), Problem> {
    for (pointer, limit) in [
        ("/quota/events_per_second", quota.events_per_second),
        ("/quota/bytes_per_second", quota.bytes_per_second),
    ] {
        if limit.is_some_and(|limit| !(1..=MAX_QUOTA).contains(&limit)) {
            let message = format!("must be 1 to {MAX_QUOTA}; to reject all events, suspend the tenant");
            return Err(invalid(pointer, message));
        }
    }
    Ok(())
}
