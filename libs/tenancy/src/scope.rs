//! The right to touch one tenant's rows.

use crate::TenantId;

/// A tenant whose rows may be touched, because somebody has proven a right to it. Each constructor names a proof; a
/// header alone is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantScope(TenantId);

impl TenantScope {
    /// The tenant that a live bearer credential belongs to.
    pub fn of_credential(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a single-use token that was just looked up by its digest.
    pub fn of_token(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a user who has just proven their password.
    pub fn of_password(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant that a request names and nothing has proven: for telling what was tried there, and no more.
    pub fn of_claim(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// Any tenant, named by the operator.
    pub fn of_platform_admin(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a row of our own that is worked off: an outbox row, or another context's record.
    pub fn of_work(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// Which tenant.
    pub fn tenant_id(&self) -> &TenantId {
        &self.0
    }
}
