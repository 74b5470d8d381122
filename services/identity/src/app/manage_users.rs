//! List users, change what they may do, disable and enable them.

use audit::{Actor, AuditEvent, EventName};
use contract::identity::{PatchUser, User};
use contract::{Page, ProblemKind, Role, UserStatus};
use service::Problem;
use service::http::page::Paging;
use tenancy::{TenantScope, UserId};

use super::App;
use crate::domain::email::EmailKey;
use crate::store::{reset, user};

impl App {
    /// The tenant's users, in the order in which they were invited.
    pub(crate) async fn users(
        &self,
        scope: &TenantScope,
        email: Option<&str>,
        status: Option<UserStatus>,
        paging: &Paging<UserId>,
    ) -> Result<Page<User>, Problem> {
        let email = email.map(EmailKey::of_login);
        let mut tx = self.database.tenant(scope).await?;
        let users = user::list(&mut tx, email.as_ref(), status, paging.after, paging.rows()).await?;
        Ok(paging.page(users, |user| user.user_id))
    }

    /// Changes role or status; what is absent stays. The tenant keeps an active administrator whatever happens at once.
    pub(crate) async fn patch_user(
        &self,
        scope: &TenantScope,
        actor: Actor,
        user_id: UserId,
        patch: &PatchUser,
    ) -> Result<User, Problem> {
        if patch.status == Some(UserStatus::Invited) {
            let message = "a user becomes invited by an invite alone";
            return Err(Problem::new(ProblemKind::ValidationFailed).field("/status", "invalid", message));
        }
        let now = self.clock.now();
        let mut tx = self.database.tenant(scope).await?;
        // All active administrators are locked, always in the same order: two who would remove each other wait in line.
        let admins = user::lock_active_admins(&mut tx).await?;
        let found = user::find_locked(&mut tx, user_id).await?.ok_or(ProblemKind::NotFound)?;
        if found.status == UserStatus::Invited {
            return Err(ProblemKind::UserInvited.into());
        }
        let (role, status) = (patch.role.unwrap_or(found.role), patch.status.unwrap_or(found.status));
        let stays_admin = role == Role::Admin && status == UserStatus::Active;
        if admins == [user_id] && !stays_admin {
            return Err(ProblemKind::LastAdmin.into());
        }
        let disables = status == UserStatus::Disabled && found.status == UserStatus::Active;
        user::mark_standing(&mut tx, user_id, role, status, disables, now).await?;
        if patch.status == Some(UserStatus::Active) {
            // Somebody who may says that this is who they are: a lock-out ends, too.
            self.forget_attempts(&mut tx, scope.tenant_id(), &EmailKey::of_login(&found.email)).await?;
        }
        if disables {
            reset::mark_replaced(&mut tx, user_id, None, now).await?;
        }
        let events = [
            (role != found.role).then_some((EventName::PrivilegePermissionsChanged, role.as_str())),
            (status != found.status).then_some((EventName::UserUpdated, status.as_str())),
        ];
        for (name, about) in events.into_iter().flatten() {
            let event =
                AuditEvent { about: Some(about), user_id: Some(user_id), ..AuditEvent::new(name, actor) };
            self.audit.record_at(&mut tx, scope.tenant_id(), event, now).await?;
        }
        self.write_subject(&mut tx, scope.tenant_id(), user_id, now).await?;
        let changed = user::find(&mut tx, user_id).await?.ok_or(ProblemKind::NotFound)?;
        tx.commit().await?;
        self.push_subject(scope.tenant_id(), user_id).await;
        Ok(changed)
    }
}
