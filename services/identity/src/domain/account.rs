//! An account as a login finds it.

use contract::internal::{SubjectRecord, TenantRecord};
use contract::{TenantStatus, UserStatus};
use hashing::PasswordDigest;

use super::email::EmailKey;

/// A user with their tenant, and the password's digest where they have set one.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) subject: SubjectRecord,
    pub(crate) tenant: TenantRecord,
    pub(crate) email: EmailKey,
    pub(crate) password_digest: Option<PasswordDigest>,
}

impl Account {
    /// Whether the right password lets them in.
    pub(crate) fn may_log_in(&self) -> bool {
        self.subject.status == UserStatus::Active && self.tenant.status == TenantStatus::Active
    }
}
