//! The second factors of a user: set up, confirm, list, remove, reset, and the notices about them.

use std::num::NonZeroU32;
use std::sync::Arc;

use audit::{AuditEvent, EventName};
use contract::factors::{FactorType, Factors, NewTotp, RecoveryCodes};
use contract::identity::SecondFactorPolicy;
use contract::{ProblemKind, Secret, UserStatus};
use database::Error;
use hashing::{RawToken, TokenDigest, TokenKind};
use service::Problem;
use service::config::Live;
use tenancy::{Actor, FactorId, TenantId, UserId};

use super::{App, MailLimit, Work, invalid};
use crate::domain::email::EmailKey;
use crate::domain::factor::{FactorKeys, RecoveryCode, TotpCode, TotpSecret};
use crate::message::{AdminChange, FactorChange, Message, Notice};
use crate::store::factor::StoredTotp;
use crate::store::user::{Admin, UserRow};
use crate::store::{factor, tenant, user};

/// Notices of changed factors. Each tenant has its own count: another tenant must not be able to prevent them.
const FACTOR_NOTICES: MailLimit =
    MailLimit::per_hour("factor_notice_recipient", NonZeroU32::new(20).unwrap()).per_tenant();

impl App {
    /// Returns the factors of a user.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_factors(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
    ) -> Result<Factors, Problem> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let factors = factor::list(&mut tx, user_id).await?;
        Ok(Factors { factors, recovery_codes: factor::count_recovery_codes(&mut tx, user_id).await? })
    }

    /// Creates an authenticator app that has no effect until it is confirmed.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn set_up_totp(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
    ) -> Result<NewTotp, Problem> {
        let keys = self.factor_keys()?;
        let secret = TotpSecret::generate(&*self.entropy);
        let sealed = keys.seal(&secret, (tenant_id, user_id), &*self.entropy);
        let sealed = sealed.ok_or(ProblemKind::TotpUnavailable)?;
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?.email;
        if factor::find_totp(&mut tx, user_id).await?.is_some_and(|totp| totp.is_confirmed) {
            return Err(ProblemKind::FactorExists.into());
        }
        let factor_id = FactorId::generate();
        factor::insert_totp(&mut tx, user_id, factor_id, &sealed).await?;
        tx.commit().await?;
        let account = format!("{account} ({tenant_id})");
        let (uri, qr_code) = (
            secret.uri(&self.config.branding.product, &account),
            secret.qr_code(&self.config.branding.product, &account),
        );
        let qr_code = Secret::new(qr_code.unwrap_or_default());
        Ok(NewTotp { factor_id, secret: Secret::new(secret.text()), uri: Secret::new(uri), qr_code })
    }

    /// Confirms the authenticator app with a code. Returns the recovery codes.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn confirm_totp(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        used_factor: bool,
        code: &str,
    ) -> Result<RecoveryCodes, Problem> {
        let wrong = |message: &str| invalid("/code", message);
        let code = TotpCode::parse(code).ok_or_else(|| wrong("must have six digits"))?;
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let email = EmailKey::from_typed(&tx.lock_account(user_id).await?.email);
        if factor::find_totp(&mut tx, user_id).await?.is_none_or(|totp| !totp.is_confirmed) {
            tx.check_factor_was_used(user_id, used_factor).await?;
        }
        let codes = tx.confirm_totp(user_id, &email, code).await?;
        let codes =
            codes.ok_or_else(|| wrong("is not the current code of the app; check the time of the device"))?;
        tx.commit().await?;
        Ok(codes)
    }

    /// Replaces the recovery codes of a user who has a factor, and has used it to log in.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn replace_recovery_codes(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        used_factor: bool,
    ) -> Result<RecoveryCodes, Problem> {
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?.email;
        if !tx.check_factor_was_used(user_id, used_factor).await? {
            let detail =
                "Recovery codes need another second factor. Set up an authenticator app or a passkey first.";
            return Err(Problem::new(ProblemKind::NotFound).detail(detail));
        }
        let codes = tx.create_recovery_codes(user_id).await?;
        tx.factor_changed(user_id, &EmailKey::from_typed(&account), FactorChange::RecoveryCodesReplaced)
            .await?;
        tx.commit().await?;
        Ok(codes)
    }

    /// Removes a factor of a user who has used it to log in, or has not confirmed it.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn remove_factor(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        used_factor: bool,
        factor_id: FactorId,
    ) -> Result<(), Problem> {
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?;
        let deleted = factor::delete(&mut tx, user_id, Some(factor_id)).await?;
        let deleted = deleted.first().ok_or(ProblemKind::NotFound)?;
        if deleted.is_confirmed {
            if !used_factor {
                return Err(ProblemKind::ReauthenticationRequired.into());
            }
            let change = match deleted.kind {
                FactorType::Totp => FactorChange::TotpRemoved,
                FactorType::Passkey => FactorChange::PasskeyRemoved,
            };
            let email = EmailKey::from_typed(&account.email);
            if factor::exists(&mut tx, user_id).await? {
                tx.factor_changed(user_id, &email, change).await?;
            } else if tx.second_factor_policy().await?.requires(account.role) {
                return Err(ProblemKind::LastFactor.into());
            } else {
                tx.factors_removed(user_id, &email, change).await?;
            }
        }
        Ok(tx.commit().await?)
    }

    /// Removes the factors of a user who has lost them. A repeated call succeeds.
    ///
    /// # Errors
    /// 409 `last_factor` if administrators reset their own factors and must have one.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn reset_factors(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        user_id: UserId,
    ) -> Result<(), Problem> {
        let is_own = matches!(actor, Actor::User { user_id: own } if own == user_id);
        let mut tx = self.begin(tenant_id, actor).await?;
        let admins = user::lock_oldest_admins(&mut tx).await?;
        let account = tx.lock_account(user_id).await?;
        let email = EmailKey::from_typed(&account.email);
        if factor::delete(&mut tx, user_id, None).await?.iter().any(|deleted| deleted.is_confirmed) {
            if is_own && tx.second_factor_policy().await?.requires(account.role) {
                return Err(ProblemKind::LastFactor.into());
            }
            tx.factors_removed(user_id, &email, FactorChange::Reset).await?;
            let others: Vec<Admin> = admins.into_iter().filter(|admin| admin.user_id != user_id).collect();
            tx.notify_admins(&others, AdminChange::FactorsReset, user_id).await?;
        }
        Ok(tx.commit().await?)
    }

    fn factor_keys(&self) -> Result<Arc<FactorKeys>, Problem> {
        Ok(self.config.factor_keys.as_ref().map(Live::get).ok_or(ProblemKind::TotpUnavailable)?)
    }
}

impl Work<'_> {
    /// Locks a user who is not invited.
    pub(super) async fn lock_account(&mut self, user_id: UserId) -> Result<UserRow, Problem> {
        let user = user::find_for_update(self, user_id).await?;
        let user = user.filter(|user| user.status != UserStatus::Invited);
        Ok(user.ok_or(ProblemKind::NotFound)?)
    }

    /// Confirms the authenticator app of a locked user. Returns new recovery codes, if the user has none; `None` if the code is wrong.
    ///
    /// # Errors
    /// 404 `not_found` if there is no app, or its secret is under another key; 409 `factor_exists` if it is confirmed already; 409
    /// `totp_unavailable`.
    pub(super) async fn confirm_totp(
        &mut self,
        user_id: UserId,
        email: &EmailKey,
        code: TotpCode,
    ) -> Result<Option<RecoveryCodes>, Problem> {
        let keys = self.app.factor_keys()?;
        let StoredTotp { factor_id, secret, is_confirmed, .. } =
            factor::find_totp(self, user_id).await?.ok_or(ProblemKind::NotFound)?;
        if is_confirmed {
            return Err(ProblemKind::FactorExists.into());
        }
        let secret = keys.open(&secret, (self.tenant_id(), user_id)).ok_or(ProblemKind::NotFound)?;
        let Some(step) = secret.step_of(code, self.now(), 0) else { return Ok(None) };
        factor::confirm_totp(self, factor_id, step).await?;
        // Their logins began without a factor.
        factor::delete_challenges(self, user_id, None).await?;
        user::mark_factor(self, user_id, true).await?;
        let codes = self.create_missing_recovery_codes(user_id).await?;
        self.send(&Message::PushUserStatus { user_id });
        self.factor_changed(user_id, email, FactorChange::TotpAdded).await?;
        Ok(Some(codes))
    }

    /// Returns whether a user has a factor.
    ///
    /// # Errors
    /// 403 `reauthentication_required` if there is one, and the session was created without it.
    pub(super) async fn check_factor_was_used(
        &mut self,
        user_id: UserId,
        used_factor: bool,
    ) -> Result<bool, Problem> {
        let has_factor = factor::exists(self, user_id).await?;
        if has_factor && !used_factor {
            return Err(ProblemKind::ReauthenticationRequired.into());
        }
        Ok(has_factor)
    }

    /// Creates the recovery codes of a user who has none. Otherwise returns none: the existing ones stay valid.
    pub(super) async fn create_missing_recovery_codes(
        &mut self,
        user_id: UserId,
    ) -> Result<RecoveryCodes, Error> {
        if factor::count_recovery_codes(self, user_id).await? > 0 {
            return Ok(RecoveryCodes { recovery_codes: Vec::new() });
        }
        self.create_recovery_codes(user_id).await
    }

    pub(super) async fn create_recovery_codes(&mut self, user_id: UserId) -> Result<RecoveryCodes, Error> {
        let codes = RecoveryCode::generate_all(&*self.app.entropy);
        factor::replace_recovery_codes(self, user_id, &codes).await?;
        Ok(RecoveryCodes { recovery_codes: codes.iter().map(|code| Secret::new(code.grouped())).collect() })
    }

    /// Returns which users of the tenant must have a factor.
    pub(super) async fn second_factor_policy(&mut self) -> Result<SecondFactorPolicy, Problem> {
        Ok(tenant::find(self).await?.ok_or(ProblemKind::NotFound)?.second_factor)
    }

    /// The user has no factor any more: logins that wait for it cannot be completed.
    async fn factors_removed(
        &mut self,
        user_id: UserId,
        email: &EmailKey,
        change: FactorChange,
    ) -> Result<(), Error> {
        factor::replace_recovery_codes(self, user_id, &[]).await?;
        factor::delete_challenges(self, user_id, None).await?;
        user::mark_factor(self, user_id, false).await?;
        self.send(&Message::PushUserStatus { user_id });
        self.factor_changed(user_id, email, change).await
    }

    /// Records a change of the factors of a user, with a notice.
    pub(super) async fn factor_changed(
        &mut self,
        user_id: UserId,
        email: &EmailKey,
        change: FactorChange,
    ) -> Result<(), Error> {
        self.audit(AuditEvent::new(EventName::AuthnFactorChange).about(change.as_str()).user(user_id));
        self.mail_factor_notice(user_id, email, change).await
    }

    /// Sends a notice about the factors of a user, if mail is configured.
    pub(super) async fn mail_factor_notice(
        &mut self,
        user_id: UserId,
        email: &EmailKey,
        change: FactorChange,
    ) -> Result<(), Error> {
        if self.app.can_mail && self.may_mail(&FACTOR_NOTICES, email).await? {
            self.send(&Message::MailNotice(Notice::Factor { user_id, change, changed_at: self.now() }));
        }
        Ok(())
    }
}

/// Returns the digest of a challenge in a request.
pub(super) fn digest_of(challenge: &Secret) -> Result<TokenDigest, Problem> {
    let token = RawToken::parse(TokenKind::Challenge, challenge.expose());
    Ok(token.map_err(|_| ProblemKind::TokenInvalid)?.digest())
}
