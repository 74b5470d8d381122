//! The tenant that a database transaction is limited to.

use crate::TenantId;

/// A tenant id with the reason for accessing its rows. A constructor documents the reason; it does not verify anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantScope(TenantId);

impl TenantScope {
    /// The tenant of a verified bearer credential.
    pub fn of_credential(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a single-use token that was found by its digest.
    pub fn of_token(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a user whose password was verified.
    pub fn of_password(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant named by an unauthenticated request. Use it only to record the attempt.
    pub fn of_unverified_header(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant named by the platform administrator, who may access every tenant.
    pub fn of_platform_admin(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of an outbox message, or of a record that another service sent.
    pub fn of_outbox(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// Returns the tenant id.
    pub fn tenant_id(&self) -> &TenantId {
        &self.0
    }
}
