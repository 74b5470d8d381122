//! Users: read, list and change.

use std::num::NonZeroU32;

use audit::{AuditEvent, EventName};
use contract::identity::{PatchUser, User, UserExport};
use contract::internal::{ExportSubject, SubjectExport};
use contract::{Page, ProblemKind, Role, UserStatus};
use database::Error;
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, TenantId, UserId};

use super::{App, MailLimit, Work, invalid};
use crate::domain::account::{AccountKey, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::factor::Failures;
use crate::message::{AdminChange, AdminNotice, Message, Notice};
use crate::store::user::{Admin, Revocation, UserRow};
use crate::store::{factor, invite, login_attempt, reset, tenant, user};

/// Notices to an administrator. Each tenant has its own count.
const ADMIN_NOTICES: MailLimit =
    MailLimit::per_hour("admin_notice_recipient", NonZeroU32::new(5).unwrap()).per_tenant();

impl App {
    /// Returns a user of the tenant.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn find_user(&self, tenant_id: &TenantId, user_id: UserId) -> Result<User, Problem> {
        self.begin(tenant_id, Actor::Anonymous).await?.find_user(user_id).await
    }

    /// Returns the stored data about a user of the tenant.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn export_user(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
    ) -> Result<UserExport, Problem> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let user = tx.find_user(user_id).await?;
        let invites = invite::list_of_user(&mut tx, user_id).await?;
        let invites = tx.with_mails(invites).await?;
        let factors = factor::list(&mut tx, user_id).await?;
        // The connection is free during the request.
        drop(tx);
        let request = ExportSubject { tenant_id: tenant_id.clone(), user_id };
        let SubjectExport { sessions, api_keys } = self.sessions.export(&request).await?;
        Ok(UserExport { tenant_id: tenant_id.clone(), user, factors, invites, sessions, api_keys })
    }

    /// Returns a page of the users of the tenant, oldest first.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_users(
        &self,
        tenant_id: &TenantId,
        email: Option<&str>,
        status: Option<UserStatus>,
        paging: &Paging<UserId>,
    ) -> Result<Page<User>, Problem> {
        let email = email.map(EmailKey::from_typed);
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let users = user::list(&mut tx, email.as_ref(), status, paging.after, paging.rows()).await?;
        // The platform administrator can name a tenant that does not exist.
        if users.is_empty() && !tenant::exists(&mut tx).await? {
            return Err(ProblemKind::NotFound.into());
        }
        let users = tx.with_lockouts(users).await?;
        Ok(paging.page(users, |user| user.user_id))
    }

    /// Changes the role, the status or both, and on request revokes the API keys that the user created. The tenant always keeps an
    /// active administrator. If the tenant requires a second factor of administrators, a new one must log in again.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn patch_user(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        recent_login: Result<(), Problem>,
        user_id: UserId,
        patch: &PatchUser,
    ) -> Result<User, Problem> {
        if patch.status == Some(UserStatus::Invited) {
            return Err(invalid("/status", "only an invite sets the status invited"));
        }
        let mut tx = self.begin(tenant_id, actor).await?;
        // Locks the same administrators first, in the same order, so that two of them cannot remove each other.
        let admins = user::lock_oldest_admins(&mut tx).await?;
        let found = user::find_for_update(&mut tx, user_id).await?.ok_or(ProblemKind::NotFound)?;
        if found.status == UserStatus::Invited {
            return Err(ProblemKind::UserInvited.into());
        }
        let (role, status) = (patch.role.unwrap_or(found.role), patch.status.unwrap_or(found.status));
        let stays_admin = role == Role::Admin && status == UserStatus::Active;
        if matches!(&*admins, [last] if last.user_id == user_id) && !stays_admin {
            return Err(ProblemKind::LastAdmin.into());
        }
        let disables = status == UserStatus::Disabled && found.status == UserStatus::Active;
        // A session that was created without a factor must not become one of an administrator who needs it.
        let is_promoted = role == Role::Admin && found.role != Role::Admin;
        let needs_login = is_promoted && tx.second_factor_policy().await?.requires(role);
        let revokes = Revocation { sessions: disables || needs_login, api_keys: patch.revoke_api_keys };
        let is_changed = (role, status) != (found.role, found.status) || patch.revoke_api_keys;
        let enables = status == UserStatus::Active && found.status == UserStatus::Disabled;
        // Otherwise a stolen session could restore an administrator, lock out the others, or end the lockout of guesses.
        let is_of_admin = found.role == Role::Admin && (is_changed || patch.status.is_some());
        if enables || is_of_admin {
            recent_login?;
        }
        if is_changed {
            user::mark_status(&mut tx, user_id, role, status, revokes).await?;
            tx.send(&Message::PushUserStatus { user_id });
        }
        // Setting the status to active also ends a lockout and a lock of the second factor.
        let unlocks = patch.status == Some(UserStatus::Active) && tx.unlock(&found).await?;
        if disables {
            reset::mark_replaced(&mut tx, user_id, None).await?;
            factor::delete_challenges(&mut tx, user_id, None).await?;
        }
        let role_changed =
            (role != found.role).then_some((EventName::PrivilegePermissionsChanged, role.as_str()));
        let status_changed = (status != found.status).then_some((EventName::UserUpdated, status.as_str()));
        let keys_revoked = patch.revoke_api_keys.then_some((EventName::UserUpdated, "api_keys_revoked"));
        let unlocked = unlocks.then_some((EventName::UserUpdated, "unlocked"));
        for (name, about) in [role_changed, status_changed, unlocked, keys_revoked].into_iter().flatten() {
            let event = AuditEvent::new(name).about(about).user(user_id);
            tx.audit(if disables { event.always_recorded() } else { event });
        }
        if role != found.role {
            let change = if role == Role::Admin { AdminChange::Promoted } else { AdminChange::Demoted };
            // Both get the notice: the promoted user, who is no administrator yet, and the demoted one.
            let affected = Admin { user_id, email: EmailKey::from_typed(&found.email) };
            let others = admins.into_iter().filter(|admin| admin.user_id != user_id);
            tx.notify_admins(&others.chain([affected]).collect::<Vec<_>>(), change, user_id).await?;
        }
        let changed = tx.find_user(user_id).await?;
        tx.commit().await?;
        Ok(changed)
    }
}

impl Work<'_> {
    async fn find_user(&mut self, user_id: UserId) -> Result<User, Problem> {
        let found = user::find(self, user_id).await?.ok_or(ProblemKind::NotFound)?;
        let user = self.with_lockouts(vec![found]).await?.pop();
        Ok(user.ok_or(ProblemKind::NotFound)?)
    }

    /// The users as the API returns them.
    async fn with_lockouts(&mut self, users: Vec<UserRow>) -> Result<Vec<User>, Error> {
        let (tenant_id, keys, now) =
            (self.tenant_id().clone(), self.app.config.limiter_keys.get(), self.now());
        let account =
            |user: &UserRow| keys.account(&AccountRef::Email(&tenant_id, &EmailKey::from_typed(&user.email)));
        let accounts: Vec<AccountKey> = users.iter().map(account).collect();
        let locked = login_attempt::list_locked(self, &accounts).await?;
        let with_lockout = |(user, account): (UserRow, AccountKey)| User {
            factors_locked_until: user.wrong_answers(now).locked_until(now),
            user_id: user.user_id,
            email: user.email,
            role: user.role,
            status: user.status,
            locked: account.stored().any(|key| locked.contains(&key)),
            created_at: user.created_at,
            updated_at: user.updated_at,
        };
        Ok(users.into_iter().zip(accounts).map(with_lockout).collect())
    }

    /// Ends a lockout and a lock of the second factor of a user, and deletes the counted failures. Returns whether the user was locked.
    async fn unlock(&mut self, user: &UserRow) -> Result<bool, Error> {
        let now = self.now();
        if user.factor_failures > 0 {
            factor::save_failures(self, user.user_id, Failures::from_stored(0, None, now)).await?;
        }
        let is_locked_out = self.delete_failures(&EmailKey::from_typed(&user.email)).await?;
        Ok(is_locked_out || user.wrong_answers(now).is_locked(now))
    }

    /// Sends a notice of a change of a user to the administrators, if mail is configured.
    pub(super) async fn notify_admins(
        &mut self,
        admins: &[Admin],
        change: AdminChange,
        user_id: UserId,
    ) -> Result<(), Error> {
        let changed_by = match self.actor() {
            Actor::User { user_id } => Some(user_id),
            _ => None,
        };
        for Admin { user_id: recipient, email } in admins {
            if self.app.can_mail && self.may_mail(&ADMIN_NOTICES, email).await? {
                let notice = AdminNotice { change, user_id, changed_by, changed_at: self.now() };
                self.send(&Message::MailNotice(Notice::Admin { recipient: *recipient, notice }));
            }
        }
        Ok(())
    }
}
