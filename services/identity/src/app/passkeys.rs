//! The registration of passkeys.

use contract::factors::{
    AddPasskey, AddedPasskey, Factor, FactorType, MAX_PASSKEY_NAME, MAX_PASSKEYS, PasskeyOptions,
};
use contract::{ProblemKind, Secret, names};
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::{Actor, FactorId, TenantId, UserId};

use super::App;
use super::second_factor::digest_of;
use crate::domain::email::EmailKey;
use crate::domain::passkey::{RelyingParty, StoredPasskey};
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
        let names = (&*format!("{account} ({tenant_id})"), &*account);
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
        let invalid = |pointer: &str, message: String| {
            Problem::new(ProblemKind::ValidationFailed).field(pointer, "invalid", message)
        };
        let name =
            names::check(&request.name, MAX_PASSKEY_NAME).map_err(|message| invalid("/name", message))?;
        let (party, digest) = (self.relying_party()?, digest_of(&request.challenge)?);
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?.email;
        let has_factor = tx.check_factor_was_used(user_id, used_factor).await?;
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
        let factor_id = FactorId::generate();
        passkey::insert(&mut tx, user_id, factor_id, name, &passkey).await.map_err(|error| {
            if error.violates(passkey::CREDENTIAL_KEY) {
                invalid("/credential", "is registered already".to_owned())
            } else {
                error.into()
            }
        })?;
        // With the first factor, also those of logins that began without one.
        factor::delete_challenges(&mut tx, user_id, has_factor.then_some(digest)).await?;
        if !has_factor {
            user::mark_factor(&mut tx, user_id, true).await?;
            tx.send(&Message::PushUserStatus { user_id });
        }
        let recovery_codes = tx.create_missing_recovery_codes(user_id).await?.recovery_codes;
        tx.factor_changed(user_id, &EmailKey::from_typed(&account), FactorChange::PasskeyAdded).await?;
        let factor = Factor {
            factor_id,
            kind: FactorType::Passkey,
            name: Some(name.to_owned()),
            created_at: tx.now(),
            last_used_at: None,
        };
        tx.commit().await?;
        Ok(AddedPasskey { factor, recovery_codes })
    }

    pub(super) fn relying_party(&self) -> Result<&RelyingParty, Problem> {
        Ok(self.relying_party.as_ref().ok_or(ProblemKind::PasskeyUnavailable)?)
    }
}

fn check_count(existing: &[StoredPasskey]) -> Result<(), Problem> {
    if existing.len() < MAX_PASSKEYS { Ok(()) } else { Err(ProblemKind::TooManyPasskeys.into()) }
}
