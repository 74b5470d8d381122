//! Tenants that a Kubernetes resource owns. The operator writes their desired state.

use audit::{AuditEvent, EventName};
use contract::Role;
use contract::identity::{CreateTenant, Delivery, Invite as InviteBody, PatchTenant};
use contract::managed::{
    Claim, Conflict, IssuedInvite, ManagedTenant, OperatorId, Owner, StoredTenant, WrittenTenant,
};
use service::Problem;
use service::http::WriteError;
use tenancy::{Actor, TenantId};

use super::App;
use super::invites::Invitation;
use crate::domain::email::Email;
use crate::domain::invite::InviteState;
use crate::domain::ownership::Ownership;
use crate::message::Message;
use crate::store::{invite, managed_tenant, tenant};

/// Tenants in one response of the list.
const PAGE: i32 = 1000;

impl App {
    /// Creates a tenant and invites its first administrator, or changes a tenant. An equal state is not written again.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn put_managed_tenant(
        &self,
        tenant_id: &TenantId,
        by: &OperatorId,
        desired: &ManagedTenant,
    ) -> Result<WrittenTenant, WriteError> {
        let mut tx = self.begin(tenant_id, Actor::PlatformAdmin).await?;
        if tenant::find_record(&mut tx).await?.is_some_and(|record| record.is_deleted) {
            return Err(Conflict::TenantDeleted.into());
        }
        let patch = PatchTenant {
            display_name: Some(desired.display_name.clone()),
            status: Some(desired.status),
            quota: Some(desired.quota),
            second_factor: Some(desired.second_factor),
            // Also one below that of the installation, which is larger after a change of the configuration.
            password_min_length: desired.password_min_length.or(Some(0)),
            passkey_login: Some(desired.passkey_login.unwrap_or(true)),
        };
        let claim = Claim { operator: by.clone(), owner: desired.owner };
        let mut written = WrittenTenant { changed: false, invite: None };
        let mut ownership;
        let is_pushed;
        if tenant::find_for_update(&mut tx).await?.is_some() {
            let stored = managed_tenant::find(&mut tx).await?;
            ownership = Ownership::claim(stored.as_ref(), claim, desired, tx.now())?;
            written.changed = tx.change_tenant(&patch).await?.is_some();
            is_pushed = written.changed;
            if !written.changed && stored.as_ref() == Some(&ownership) {
                return Ok(written);
            }
            if stored.is_none_or(|stored| stored.claim.operator != *by || stored.released_at.is_some()) {
                tx.audit(AuditEvent::new(EventName::AuthzAdmin).about("tenant_adopted"));
            }
        } else {
            ownership = Ownership::new(claim);
            let invite = tx.create_tenant(&creation(tenant_id, desired)).await?.invite;
            is_pushed = tx.change_tenant(&patch).await?.is_some();
            ownership.invite_id = invite.as_ref().map(|invite| invite.invite_id);
            written.invite = invite.and_then(issued);
            ownership.invite_expires_at = written.invite.as_ref().map(|invite| invite.expires_at);
        }
        managed_tenant::save(&mut tx, &ownership).await?;
        if !is_pushed {
            // session knows only tenants that it has received. A producer can send events before the first login.
            tx.send(&Message::PushTenantStatus);
        }
        tx.commit().await?;
        Ok(written)
    }

    /// Issues a new token for the invite of the first administrator, or a new invite if it has expired.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn renew_managed_invite(
        &self,
        tenant_id: &TenantId,
        by: &OperatorId,
        owner: Owner,
    ) -> Result<IssuedInvite, WriteError> {
        let mut tx = self.begin(tenant_id, Actor::PlatformAdmin).await?;
        tenant::find_for_update(&mut tx).await?.ok_or(Conflict::TenantNotFound)?;
        let stored = managed_tenant::find(&mut tx).await?.ok_or(Conflict::TenantExists)?;
        let claim = Claim { operator: by.clone(), owner };
        stored.require(&claim)?;
        let found = match stored.invite_id {
            Some(invite_id) => invite::find_for_update(&mut tx, invite_id).await?,
            None => None,
        };
        let found = found.ok_or(Conflict::InviteSettled)?.at(tx.now());
        let renewed = match found.state {
            InviteState::Pending(_) if stored.invite_expires_at == Some(found.expires_at) => {
                tx.resend(found, Delivery::Response).await?
            }
            InviteState::Expired { .. } => {
                let email: Email = found.email.parse().map_err(|_| Conflict::InviteSettled)?;
                tx.invite(&Invitation { email, role: Role::Admin, delivery: Delivery::Response }).await?
            }
            InviteState::Pending(_) | InviteState::Accepted { .. } | InviteState::Revoked { .. } => {
                return Err(Conflict::InviteSettled.into());
            }
        };
        let invite_id = Some(renewed.invite_id);
        let issued = issued(renewed).ok_or(Conflict::InviteSettled)?;
        let invite_expires_at = Some(issued.expires_at);
        let ownership = Ownership { claim, invite_id, invite_expires_at, ..stored };
        managed_tenant::save(&mut tx, &ownership).await?;
        tx.commit().await?;
        Ok(issued)
    }

    /// Ends the ownership. The tenant remains as it is. A repeated call succeeds.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn release_managed_tenant(
        &self,
        tenant_id: &TenantId,
        by: &OperatorId,
        owner: Owner,
    ) -> Result<(), WriteError> {
        let mut tx = self.begin(tenant_id, Actor::PlatformAdmin).await?;
        tenant::find_for_update(&mut tx).await?;
        let stored = managed_tenant::find(&mut tx).await?.filter(|stored| stored.released_at.is_none());
        let Some(stored) = stored else { return Ok(()) };
        let claim = Claim { operator: by.clone(), owner };
        stored.require(&claim)?;
        let released_at = Some(tx.now());
        managed_tenant::save(&mut tx, &Ownership { claim, released_at, ..stored }).await?;
        tx.audit(AuditEvent::new(EventName::AuthzAdmin).about("tenant_released"));
        Ok(tx.commit().await?)
    }

    /// Lists the tenants of an operator after a given one, in the order of their ids.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_managed_tenants(
        &self,
        by: &OperatorId,
        after: &str,
    ) -> Result<Vec<StoredTenant>, Problem> {
        Ok(managed_tenant::list(&self.database, by, after, PAGE, self.clock.now()).await?)
    }
}

/// The request that creates the tenant.
fn creation(tenant_id: &TenantId, desired: &ManagedTenant) -> CreateTenant {
    CreateTenant {
        tenant_id: tenant_id.clone(),
        display_name: desired.display_name.clone(),
        admin_email: desired.admin.as_ref().map(|admin| admin.email.clone()),
        delivery: desired.admin.as_ref().map(|admin| admin.delivery).unwrap_or_default(),
        quota: Some(desired.quota),
        second_factor: desired.second_factor,
        password_min_length: desired.password_min_length,
        passkey_login: desired.passkey_login,
    }
}

/// The token of an invite with delivery `response`.
fn issued(invite: InviteBody) -> Option<IssuedInvite> {
    Some(IssuedInvite { email: invite.email, token: invite.token?, expires_at: invite.expires_at })
}
