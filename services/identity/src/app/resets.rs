//! Password resets: request, mail and confirmation.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use audit::{AuditEvent, EventName};
use chrono::{DateTime, Utc};
use contract::ProblemKind;
use contract::identity::{ConfirmReset, InspectedReset};
use data_encoding::HEXLOWER;
use database::Error;
use hashing::{RawToken, TokenDigest, TokenKind};
use ratelimit::source;
use service::Problem;
use tenancy::{Actor, OutboxId, ResetId, TenantId};

use super::{App, MailLimit, Work};
use crate::domain::account::AccountRef;
use crate::domain::email::{Email, EmailKey};
use crate::domain::reset::{Reset, ResetState};
use crate::mail::{Letterhead, Mail, MailToken, Purpose, Values};
use crate::message::Message;
use crate::store::reset::ResetOfAccount;
use crate::store::{factor, reset, tenant, user};

/// Resets per recipient. Further requests keep the active token.
const RESET_MAILS: MailLimit = MailLimit::per_hour("reset_recipient", NonZeroU32::new(5).unwrap());
/// Further resets of a mailbox if no token is active: otherwise another tenant could prevent resets. They are limited too, because
/// the user can end a token with a password change, and an administrator by disabling the user.
const FURTHER_RESET_MAILS: MailLimit =
    MailLimit::per_hour("further_reset_recipient", NonZeroU32::new(2).unwrap()).per_tenant();
/// A client address can request resets of this many accounts as often as of one.
const ACCOUNTS_PER_ADDRESS: u32 = 12;

impl App {
    /// Requests a reset: writes one outbox message, whether or not the account exists. A worker decides whether it sends a mail.
    ///
    /// # Errors
    /// The text is not an e-mail address, the client address requested too many resets of the account or of all accounts, or
    /// the database failed.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn request_reset(
        &self,
        tenant_id: &TenantId,
        email: &str,
        address: IpAddr,
    ) -> Result<(), Problem> {
        let email = email.parse::<Email>().map_err(|_| ProblemKind::ValidationFailed)?;
        // Counted per account first, because people behind one address must not use up the limit of each other.
        let account = self.config.limiter_keys.get().account(&AccountRef::Email(tenant_id, email.key()));
        let source = source(address).for_account(&HEXLOWER.encode(&account.current), ACCOUNTS_PER_ADDRESS);
        self.limiter.count(&self.config.rate_limits.reset, source).await?;
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let (email_key, requested_at) = (email.key().as_str().to_owned(), tx.now());
        tx.send(&Message::MailReset { email_key, requested_at, ip: tx.kept_address() });
        Ok(tx.commit().await?)
    }

    /// Composes the mail of a reset with a new token; `None` if no active account has the address, if a newer request replaced
    /// this one, or if too many resets were sent. Earlier tokens stay valid until the mail server has accepted the mail. The audit
    /// event has the time and the client address of the request.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn compose_reset(
        &self,
        head: &Arc<Letterhead>,
        tenant_id: &TenantId,
        mail_id: OutboxId,
        email: &EmailKey,
        (requested_at, ip): (DateTime<Utc>, Option<IpAddr>),
    ) -> Result<Option<Mail>, Error> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let Some(user) = user::find_active_for_update(&mut tx, email).await? else {
            self.resets_dropped.inc();
            return Ok(None);
        };
        let Some(tenant) = tenant::find(&mut tx).await? else { return Ok(None) };
        let token = RawToken::generate(TokenKind::PasswordReset, &*self.entropy);
        let known = reset::find_known(&mut tx, user.user_id, mail_id).await?;
        if known.is_settled {
            return Ok(None);
        }
        if !known.is_repeated && !tx.count_reset(email, known.is_active).await? {
            self.resets_dropped.inc();
            tracing::debug!(%tenant_id, user_id = %user.user_id, "reset limit reached; no mail is sent");
            return Ok(None);
        }
        let reset = Reset {
            id: ResetId::generate(),
            mail_id,
            user_id: user.user_id,
            created_at: tx.now(),
            digest: token.digest(),
            expires_at: tx.now() + self.config.reset_ttl,
            state: ResetState::Pending,
        };
        reset::insert(&mut tx, &reset).await?;
        if !known.is_repeated {
            let created = AuditEvent::new(EventName::AuthnTokenCreated).about("password_reset");
            // The person gets the mail also while the audit events of the tenant wait.
            let created = created.user(user.user_id).always_recorded();
            tx.audit(AuditEvent { occurred_at: Some(requested_at), ip, ..created });
        }
        tx.commit().await?;
        let letter = head.reset(&Values::new(&user.email, &tenant, reset.expires_at), &token);
        let token = MailToken { digest: reset.digest, purpose: Purpose::Reset(reset.id) };
        Ok(Some(Mail { to: user.email, letter, token: Some(token) }))
    }

    /// The mail server has accepted the mail of a reset: older ones are replaced, unless a newer one has replaced this one.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn reset_mailed(&self, tenant_id: &TenantId, reset_id: ResetId) -> Result<(), Error> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        // The account can be deleted.
        let Some(ResetOfAccount { reset, .. }) = reset::find_for_update(&mut tx, reset_id).await? else {
            return Ok(());
        };
        if reset.state == ResetState::Pending {
            reset::mark_replaced(&mut tx, reset.user_id, Some(&reset)).await?;
        }
        tx.commit().await
    }

    /// Returns the account of a token that can be used now. Does not use up the token.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn inspect_reset(
        &self,
        raw_token: &str,
        address: IpAddr,
    ) -> Result<InspectedReset, Problem> {
        let (digest, reset_id, tenant_id) = self.find_reset(raw_token, address).await?;
        // Never committed.
        let mut tx = self.begin(&tenant_id, Actor::Anonymous).await?;
        let (Reset { user_id, expires_at, .. }, _) = tx.confirm(reset_id, &digest).await?;
        let tenant = tenant::find(&mut tx).await?.ok_or(ProblemKind::TokenInvalid)?;
        let user = user::find(&mut tx, user_id).await?.ok_or(ProblemKind::TokenInvalid)?;
        Ok(InspectedReset {
            tenant_id: tenant.tenant_id,
            tenant_name: tenant.display_name,
            email: user.email,
            expires_at,
            password_min_length: self.policy.for_tenant(tenant.password_min_length).min_length,
        })
    }

    /// Returns the digest of a reset token, the id of the reset, and its tenant.
    async fn find_reset(
        &self,
        raw_token: &str,
        address: IpAddr,
    ) -> Result<(TokenDigest, ResetId, TenantId), Problem> {
        let find = |digest| reset::find_by_digest(&self.database, digest);
        self.find_by_token(TokenKind::PasswordReset, raw_token, address, find).await
    }

    /// Sets a new password with the token of a reset and revokes all sessions of the user, and on request the API keys that the
    /// user created. The token is checked first, then the password; only then the password is hashed.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn confirm_reset(&self, request: &ConfirmReset, address: IpAddr) -> Result<(), Problem> {
        let (digest, reset_id, tenant_id) = self.find_reset(request.token.expose(), address).await?;
        let mut tx = self.begin(&tenant_id, Actor::Anonymous).await?;
        let (_, email) = tx.confirm(reset_id, &digest).await?;
        // Hashing takes longer than everything else, so it does not hold a connection.
        drop(tx);
        let new = request.new_password.expose();
        let new = self.check_new_password(new, &email, &tenant_id, "/new_password").await?;
        let password_digest = self.hash(new, address, AccountRef::Email(&tenant_id, &email)).await?;

        let mut tx = self.begin(&tenant_id, Actor::Anonymous).await?;
        let (used, email) = tx.confirm(reset_id, &digest).await?;
        let user_id = used.user_id;
        let consumed = reset::mark_used(&mut tx, &used).await?
            && user::mark_password_reset(&mut tx, user_id, &password_digest, request.revoke_api_keys).await?;
        if !consumed {
            return Err(ProblemKind::TokenInvalid.into());
        }
        reset::mark_replaced(&mut tx, user_id, None).await?;
        factor::delete_challenges(&mut tx, user_id, None).await?;
        tx.delete_failures(&email).await?;
        let event = AuditEvent::new(EventName::AuthnPasswordChange).about("reset").user(user_id);
        tx.audit(event.by(Actor::User { user_id }).credential(&digest));
        tx.password_changed(user_id, &email).await?;
        Ok(tx.commit().await?)
    }
}

impl Work<'_> {
    /// Counts the mail of a reset. Returns whether it can be sent.
    async fn count_reset(&mut self, email: &EmailKey, has_token: bool) -> Result<bool, Error> {
        if self.may_mail(&RESET_MAILS, email).await? {
            return Ok(true);
        }
        if has_token {
            return Ok(false);
        }
        let mailbox = email.without_tag().unwrap_or_else(|| email.clone());
        self.may_mail(&FURTHER_RESET_MAILS, &mailbox).await
    }

    /// Returns the reset, used with its token, and the address of its account, if user and tenant are active.
    async fn confirm(
        &mut self,
        reset_id: ResetId,
        digest: &TokenDigest,
    ) -> Result<(Reset, EmailKey), Problem> {
        let found = reset::find_for_update(self, reset_id).await?.filter(|found| found.is_active);
        let ResetOfAccount { reset, email, .. } = found.ok_or(ProblemKind::TokenInvalid)?;
        let used = reset.confirm(digest, self.now()).ok_or(ProblemKind::TokenInvalid)?;
        Ok((used, email))
    }
}
