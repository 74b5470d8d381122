//! The registration of passkeys, and their names.

use audit::{AuditEvent, EventName};
use contract::factors::{
    AddPasskey, AddedPasskey, Factor, FactorType, MAX_PASSKEY_NAME, MAX_PASSKEYS, PasskeyOptions,
    RecoveryCodes,
};
use contract::{ProblemKind, Secret, names};
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::{Actor, FactorId, TenantId, UserId};

use super::factors::digest_of;
use super::{App, Work, invalid};
use crate::domain::email::EmailKey;
use crate::domain::passkey::{NewPasskey, RelyingParty, StoredPasskey};
use crate::message::{FactorChange, Message};
use crate::store::factor::{NewChallenge, Purpose};
use crate::store::{factor, passkey, user};

impl App {
    /// Returns the options to register a passkey, with a challenge.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn start_passkey(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
    ) -> Result<PasskeyOptions, Problem> {
        let party = self.relying_party()?;
        let token = RawToken::generate(TokenKind::Challenge, &*self.entropy);
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?.email;
        let version = user::lock_active(&mut tx, user_id).await?.ok_or(ProblemKind::NotFound)?;
        let existing = passkey::list(&mut tx, user_id).await?;
        check_count(&existing)?;
        let user_handle = passkey::user_handle(&mut tx, user_id).await?;
        let digest = token.digest();
        let (credential_version, purpose) = (version, Purpose::RegisterPasskey);
        let challenge = NewChallenge { digest, credential_version, purpose, network: None };
        let expires_at = factor::insert_challenge(&mut tx, user_id, &challenge).await?;
        tx.commit().await?;
        let ids = existing.iter().map(|existing| &*existing.passkey.credential_id);
        let names = (&*passkey_account(&account, tenant_id), &*account);
        let public_key = party.creation_options(digest.as_bytes(), user_handle, names, ids);
        Ok(PasskeyOptions { challenge: Secret::new(token.expose()), expires_at, public_key })
    }

    /// Registers a passkey.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn add_passkey(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        used_factor: bool,
        request: &AddPasskey,
    ) -> Result<AddedPasskey, Problem> {
        let name = passkey_name(&request.name)?;
        let (party, digest) = (self.relying_party()?, digest_of(&request.challenge)?);
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?.email;
        tx.check_factor_was_used(user_id, used_factor).await?;
        let version = user::lock_active(&mut tx, user_id).await?.ok_or(ProblemKind::NotFound)?;
        let purpose = Purpose::RegisterPasskey;
        if !factor::count_attempt(&mut tx, user_id, digest, version, purpose).await? {
            return Err(ProblemKind::TokenInvalid.into());
        }
        let passkey = match party.register(&request.credential, digest.as_bytes()) {
            Ok(passkey) => passkey,
            Err(error) => {
                tx.commit().await?;
                return Err(invalid("/credential", error.to_string()));
            }
        };
        check_count(&passkey::list(&mut tx, user_id).await?)?;
        factor::delete_challenges(&mut tx, user_id, Some(digest)).await?;
        let email = EmailKey::from_typed(&account);
        let (factor_id, codes) = tx.insert_passkey(user_id, &email, name, &passkey).await?;
        let factor = Factor {
            factor_id,
            kind: FactorType::Passkey,
            name: Some(name.to_owned()),
            created_at: tx.now(),
            last_used_at: None,
        };
        tx.commit().await?;
        Ok(AddedPasskey { factor, recovery_codes: codes.recovery_codes })
    }

    /// Renames a passkey of a user who has used a factor to log in. A name has no effect on logins, so there is no mail.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn rename_passkey(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        used_factor: bool,
        factor_id: FactorId,
        name: &str,
    ) -> Result<Factor, Problem> {
        let name = passkey_name(name)?;
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        tx.lock_account(user_id).await?;
        let renamed = passkey::rename(&mut tx, user_id, factor_id, name).await?;
        let renamed = renamed.ok_or(ProblemKind::NotFound)?;
        tx.check_factor_was_used(user_id, used_factor).await?;
        tx.audit(AuditEvent::new(EventName::AuthnFactorChange).about("passkey_renamed").user(user_id));
        tx.commit().await?;
        Ok(renamed)
    }

    pub(super) fn relying_party(&self) -> Result<&RelyingParty, Problem> {
        Ok(self.relying_party.as_ref().ok_or(ProblemKind::PasskeyUnavailable)?)
    }
}

impl Work<'_> {
    /// Inserts a passkey of a locked user. Returns its id, and new recovery codes if the user has none.
    pub(super) async fn insert_passkey(
        &mut self,
        user_id: UserId,
        email: &EmailKey,
        name: &str,
        passkey: &NewPasskey,
    ) -> Result<(FactorId, RecoveryCodes), Problem> {
        let (factor_id, is_first) = (FactorId::generate(), !factor::exists(self, user_id).await?);
        passkey::insert(self, user_id, factor_id, name, passkey).await.map_err(|error| {
            if error.violates(passkey::CREDENTIAL_KEY) {
                invalid("/credential", "is registered already")
            } else {
                error.into()
            }
        })?;
        if is_first {
            // Their logins began without a factor.
            factor::delete_challenges(self, user_id, None).await?;
            user::mark_factor(self, user_id, true).await?;
            self.send(&Message::PushUserStatus { user_id });
        }
        let codes = self.create_missing_recovery_codes(user_id).await?;
        self.factor_changed(user_id, email, FactorChange::PasskeyAdded).await?;
        Ok((factor_id, codes))
    }
}

/// Checks the name of a passkey.
pub(super) fn passkey_name(name: &str) -> Result<&str, Problem> {
    names::check(name, MAX_PASSKEY_NAME).map_err(|message| invalid("/name", message))
}

/// The name of an account in the list of an authenticator.
pub(super) fn passkey_account(email: &str, tenant_id: &TenantId) -> String {
    format!("{email} ({tenant_id})")
}

fn check_count(existing: &[StoredPasskey]) -> Result<(), Problem> {
    if existing.len() < MAX_PASSKEYS { Ok(()) } else { Err(ProblemKind::TooManyPasskeys.into()) }
}
