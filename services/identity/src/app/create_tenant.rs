//! Create a tenant, with its first administrator's invite where that is asked for.

use audit::{Actor, AuditEvent, EventName};
use contract::identity::{CreateTenant, Quota, Tenant};
use contract::{ProblemKind, Role};
use database::Error;
use service::Problem;
use tenancy::TenantScope;

use super::App;
use super::invite_user::{Invitation, InviteError};
use crate::domain::email::{Email, InvalidEmail};
use crate::store::tenant;

const MAX_NAME: usize = 200;
/// What fits the column, and is more than any broker takes.
const MAX_QUOTA: u32 = i32::MAX.cast_unsigned();

/// Why no tenant was created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateTenantError {
    #[error("the display name has 1 to {MAX_NAME} characters, none of them a control character")]
    Name,
    #[error("a quota is 1 to {MAX_QUOTA}")]
    Quota,
    #[error(transparent)]
    Email(#[from] InvalidEmail),
    #[error("the tenant exists")]
    Exists,
    #[error(transparent)]
    Invite(#[from] InviteError),
    #[error(transparent)]
    Database(Error),
}

impl From<Error> for CreateTenantError {
    fn from(error: Error) -> Self {
        if error.violates(tenant::PRIMARY_KEY) { Self::Exists } else { Self::Database(error) }
    }
}

impl From<CreateTenantError> for Problem {
    fn from(error: CreateTenantError) -> Self {
        let invalid = |pointer, message: String| {
            Self::new(ProblemKind::ValidationFailed).field(pointer, "invalid", message)
        };
        match error {
            CreateTenantError::Name => invalid("/display_name", error.to_string()),
            CreateTenantError::Quota => invalid("/quota", error.to_string()),
            CreateTenantError::Email(error) => invalid("/admin_email", error.to_string()),
            CreateTenantError::Exists => ProblemKind::TenantExists.into(),
            CreateTenantError::Invite(error) => error.into(),
            CreateTenantError::Database(error) => error.into(),
        }
    }
}

impl App {
    /// Creates the tenant and the invite in one transaction: there is never a tenant that nobody was invited into.
    pub(crate) async fn create_tenant(&self, request: &CreateTenant) -> Result<Tenant, CreateTenantError> {
        let name = checked_name(&request.display_name)?;
        let quota = request.quota.unwrap_or_default();
        checked_quota(&quota)?;
        let admin = request.admin_email.as_deref().map(str::parse::<Email>).transpose()?;

        let now = self.clock.now();
        let mut tx = self.database.tenant(&TenantScope::of_platform_admin(request.tenant_id.clone())).await?;
        tenant::insert(&mut tx, &request.tenant_id, name, &quota, now).await?;
        let created = AuditEvent {
            about: Some("tenant_created"),
            ..AuditEvent::new(EventName::AuthzAdmin, Actor::PlatformAdmin)
        };
        self.audit.record_at(&mut tx, &request.tenant_id, created, now).await?;
        let invite = match admin {
            Some(email) => {
                let invitation = Invitation { email, role: Role::Admin, delivery: request.delivery };
                Some(self.invite_in(&mut tx, &request.tenant_id, Actor::PlatformAdmin, &invitation).await?)
            }
            None => None,
        };
        let tenant = tenant::find(&mut tx, &request.tenant_id).await?.ok_or(CreateTenantError::Exists)?;
        tx.commit().await?;
        Ok(Tenant { invite, ..tenant })
    }
}

/// A tenant's name, without outer white space.
pub(super) fn checked_name(name: &str) -> Result<&str, CreateTenantError> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(CreateTenantError::Name);
    }
    Ok(name)
}

/// A quota that lets something through and fits its column.
pub(super) fn checked_quota(quota: &Quota) -> Result<(), CreateTenantError> {
    let within = |value: Option<u32>| value.is_none_or(|value| (1..=MAX_QUOTA).contains(&value));
    if within(quota.events_per_second) && within(quota.bytes_per_second) {
        return Ok(());
    }
    Err(CreateTenantError::Quota)
}
