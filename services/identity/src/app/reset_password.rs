//! Reset a forgotten password: a request that tells nobody anything, a mail, and a token that is good once.

use audit::{Actor, AuditEvent, EventName};
use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::ConfirmReset;
use contract::{API_PREFIX, ProblemKind};
use database::Error;
use hashing::{Overloaded, RawToken, TokenKind};
use service::Problem;
use tenancy::{TenantId, TenantScope};
use url::Url;
use uuid::Uuid;

use super::App;
use super::accept_password::PasswordError;
use crate::domain::email::{Email, EmailKey};
use crate::mail::{Action, Letter, Mail, origin};
use crate::message::Message;
use crate::store::{reset, user};

/// When so many resets were mailed to an account within an hour, further requests leave the live token alone. Where none
/// lives, one is mailed all the same: else a stranger could keep the owner without one.
const MAX_AN_HOUR: i64 = 5;

/// Why a reset was not confirmed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfirmError {
    #[error("the token cannot be used")]
    Token,
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<ConfirmError> for Problem {
    fn from(error: ConfirmError) -> Self {
        match error {
            ConfirmError::Token => ProblemKind::TokenInvalid.into(),
            ConfirmError::Password(error) => error.at("/new_password"),
            ConfirmError::Overloaded(_) => ProblemKind::Overloaded.into(),
            ConfirmError::Database(error) => error.into(),
        }
    }
}

impl App {
    /// One constant write, whoever it is about; a worker decides later whether there is anybody to mail.
    pub(crate) async fn request_reset(&self, tenant_id: &TenantId, email: &str) -> Result<(), Error> {
        let key = EmailKey::of_login(email);
        let scope = TenantScope::of_unverified_header(tenant_id.clone());
        let mut tx = self.database.begin(&scope, Actor::Anonymous, self.clock.now()).await?;
        tx.send(&Message::MailReset { email_key: key.as_str().to_owned() });
        tx.commit().await
    }

    /// The mail of a reset, if there is an active account behind the address; `None` when there is nothing to send.
    pub(crate) async fn compose_reset(
        &self,
        public_url: &Url,
        tenant_id: &TenantId,
        request_id: Uuid,
        email: &EmailKey,
    ) -> Result<Option<Mail>, Error> {
        let now = self.clock.now();
        let mut tx = self.database.tenant(&TenantScope::of_outbox(tenant_id.clone())).await?;
        let Some((user_id, email)) = user::find_active(&mut tx, email).await? else {
            self.resets_dropped.inc();
            return Ok(None);
        };
        let again = match reset::status(&mut tx, request_id).await?.as_deref() {
            None => false,
            Some("pending") => true,
            // A newer request took its place while this one's mail could not be sent.
            Some(_) => return Ok(None),
        };
        if !again
            && reset::is_live(&mut tx, user_id, now).await?
            && reset::count_since(&mut tx, user_id, now - TimeDelta::hours(1)).await? >= MAX_AN_HOUR
        {
            self.resets_dropped.inc();
            tracing::debug!(%tenant_id, %user_id, "too many resets of one account; the last one stays");
            return Ok(None);
        }
        let token = RawToken::generate(TokenKind::PasswordReset, &*self.entropy);
        let expires_at = now + self.reset_ttl;
        reset::mark_replaced(&mut tx, user_id, Some(request_id), now).await?;
        reset::insert_or_renew(&mut tx, request_id, tenant_id, user_id, token.digest(), expires_at, now)
            .await?;
        tx.commit().await?;
        Ok(Some(Mail {
            to: email,
            letter: letter(public_url, tenant_id, &token, expires_at),
            token: Some(token.digest()),
        }))
    }

    /// Looks at the token first, then at the password, and only then hashes. All sessions of the user end.
    pub(crate) async fn confirm_reset(&self, request: &ConfirmReset) -> Result<(), ConfirmError> {
        let token = RawToken::parse(TokenKind::PasswordReset, request.token.expose());
        let digest = token.map_err(|_| ConfirmError::Token)?.digest();
        let found = reset::find_by_digest(&self.database, digest).await?;
        let (reset_id, tenant_id) = found.ok_or(ConfirmError::Token)?;
        let scope = TenantScope::of_token(tenant_id.clone());
        let mut tx = self.database.tenant(&scope).await?;
        let pending = reset::find_pending(&mut tx, reset_id, self.clock.now()).await?;
        // Not held while the password is hashed.
        drop(tx);
        let (user_id, email) = pending.ok_or(ConfirmError::Token)?;
        let new = self.accept_password(request.new_password.expose(), &email, &tenant_id).await?;
        let password_digest = self.hashes.hash(new).await?;

        let now = self.clock.now();
        let mut tx = self.database.tenant(&scope).await?;
        let won = reset::mark_used(&mut tx, reset_id, digest, now).await?
            && user::mark_password_reset(&mut tx, user_id, &password_digest, now).await?;
        if !won {
            return Err(ConfirmError::Token);
        }
        self.forget_attempts(&mut tx, &tenant_id, &email).await?;
        let changed = AuditEvent {
            about: Some("reset"),
            user_id: Some(user_id),
            ..AuditEvent::new(EventName::AuthnPasswordChange, Actor::User { user_id })
        };
        self.audit.record_at(&mut tx, &tenant_id, changed.credential(&digest), now).await?;
        self.write_subject(&mut tx, &tenant_id, user_id, now).await?;
        self.write_notice(&mut tx, &tenant_id, user_id, now).await?;
        tx.commit().await?;
        self.push_subject(&tenant_id, user_id).await;
        Ok(())
    }
}

/// Whether a request of a reset is about something that can be an address at all.
pub(crate) fn is_address(email: &str) -> bool {
    email.parse::<Email>().is_ok()
}

fn letter(public_url: &Url, tenant_id: &TenantId, token: &RawToken, expires_at: DateTime<Utc>) -> Letter {
    let (origin, token) = (origin(public_url), token.expose());
    let until = expires_at.format("%Y-%m-%d %H:%M UTC");
    Letter {
        subject: "Choose a new password".to_owned(),
        lead: vec![format!(
            "Somebody, probably you, asked for a new password for this address in tenant {tenant_id}."
        )],
        action: Some(Action {
            purpose: "to choose one".to_owned(),
            label: "Choose a new password".to_owned(),
            link: format!("{origin}{API_PREFIX}/pages/reset-password#token={token}"),
            command: format!("svc auth password confirm-reset --base-url {origin} {token}"),
        }),
        closing: vec![
            format!("It can be used once, until {until}."),
            "If it was not you, you can ignore this mail: nothing has changed.".to_owned(),
        ],
    }
}
