//! The account that a login verifies.

use contract::internal::{SubjectRecord, TenantRecord};
use contract::{TenantStatus, UserStatus};
use hashing::PasswordDigest;

use super::email::EmailKey;

/// A user with the tenant.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) subject: SubjectRecord,
    pub(crate) tenant: TenantRecord,
    pub(crate) email: EmailKey,
    /// `None` until the invite is accepted.
    pub(crate) password_digest: Option<PasswordDigest>,
}

impl Account {
    /// Whether user and tenant are active.
    pub(crate) fn may_log_in(&self) -> bool {
        self.subject.status == UserStatus::Active && self.tenant.status == TenantStatus::Active
    }
}
