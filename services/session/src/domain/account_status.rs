//! Account status: whether a user and their tenant are active, and the versions that invalidate older sessions.

use contract::internal::{SubjectRecord, TenantRecord};
use contract::session::AuthMethod;
use contract::{Role, TenantStatus, UserStatus};
use tenancy::{SessionId, UserId};

/// The account versions under which a session is created.
///
/// identity increases `credential_version` when a password changes and `session_version` when a tenant is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountVersions {
    pub(crate) user_id: UserId,
    pub(crate) credential_version: i64,
    pub(crate) session_version: i64,
}

/// The current status of a user and their tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountStatus {
    pub(crate) versions: AccountVersions,
    pub(crate) role: Role,
    pub(crate) user_status: UserStatus,
    pub(crate) tenant_status: TenantStatus,
    /// The session that stays active although its credential version is older.
    pub(crate) kept_session_id: Option<SessionId>,
    /// Whether a login needs a second factor: the user has one, or the tenant requires one.
    pub(crate) needs_factor: bool,
}

impl AccountStatus {
    /// The status that the records of identity contain.
    pub(crate) fn from_records(tenant: &TenantRecord, subject: &SubjectRecord) -> Self {
        Self {
            versions: AccountVersions {
                user_id: subject.user_id,
                credential_version: subject.credential_version,
                session_version: tenant.session_version,
            },
            role: subject.role,
            user_status: subject.status,
            tenant_status: tenant.status,
            kept_session_id: subject.kept_session_id,
            needs_factor: subject.has_factor || tenant.second_factor.requires(subject.role),
        }
    }

    /// Returns whether a session can be created under these versions: it would be active, and the user authenticated with the second
    /// factor if there is one or the tenant requires one.
    pub(crate) fn permits_new_session(&self, versions: &AccountVersions, amr: &[AuthMethod]) -> bool {
        self.is_active()
            && self.versions == *versions
            && (!self.needs_factor || amr.contains(&AuthMethod::Mfa))
    }

    /// Returns whether an existing session that was created under these versions is still permitted.
    pub(crate) fn permits_session(&self, session_id: SessionId, versions: &AccountVersions) -> bool {
        self.is_active()
            && self.versions.user_id == versions.user_id
            && self.versions.session_version == versions.session_version
            && (self.versions.credential_version == versions.credential_version
                || self.kept_session_id == Some(session_id))
    }

    fn is_active(&self) -> bool {
        self.user_status == UserStatus::Active && self.tenant_status == TenantStatus::Active
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(credential_version: i64, session_version: i64) -> AccountStatus {
        AccountStatus {
            versions: AccountVersions { user_id: UserId::generate(), credential_version, session_version },
            role: Role::Member,
            user_status: UserStatus::Active,
            tenant_status: TenantStatus::Active,
            kept_session_id: None,
            needs_factor: false,
        }
    }

    #[test]
    fn kept_session_survives_password_change_but_not_suspension() {
        let session_id = SessionId::generate();
        let before = status(1, 1);
        let mut changed = AccountStatus { kept_session_id: Some(session_id), ..before };
        changed.versions.credential_version = 2;
        assert!(changed.permits_session(session_id, &before.versions));
        assert!(!changed.permits_session(SessionId::generate(), &before.versions));
        assert!(!changed.permits_new_session(&before.versions, &[AuthMethod::Pwd]));
        changed.versions.session_version = 2;
        assert!(!changed.permits_session(session_id, &before.versions));
    }

    proptest! {
        #[test]
        fn without_a_kept_session_only_equal_versions_of_an_active_account_are_permitted(
            credential_version in 0_i64..3, session_version in 0_i64..3,
            created_credential in 0_i64..3, created_session in 0_i64..3,
            user in 0_usize..3, tenant in 0_usize..2, same_user: bool, needs_factor: bool, with_factor: bool,
        ) {
            let account = AccountStatus {
                user_status: UserStatus::ALL[user],
                tenant_status: TenantStatus::ALL[tenant],
                needs_factor,
                ..status(credential_version, session_version)
            };
            let created_under = AccountVersions {
                user_id: if same_user { account.versions.user_id } else { UserId::generate() },
                credential_version: created_credential,
                session_version: created_session,
            };
            let expected = same_user
                && account.user_status == UserStatus::Active
                && account.tenant_status == TenantStatus::Active
                && credential_version == created_credential
                && session_version == created_session;
            prop_assert_eq!(account.permits_session(SessionId::generate(), &created_under), expected);
            let amr = if with_factor { AuthMethod::ALL } else { &[AuthMethod::Pwd] };
            let is_complete = with_factor || !needs_factor;
            prop_assert_eq!(account.permits_new_session(&created_under, amr), expected && is_complete);
        }
    }
}
