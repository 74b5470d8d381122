//! The set-up of a second factor in a login: an authenticator app or a passkey, with a challenge that permits nothing else. The first code
//! of the app, or the new passkey, completes the login.

use std::net::IpAddr;

use contract::factors::{NewTotp, PasskeyOptions, RecoveryCodes};
use contract::internal::SubjectRecord;
use contract::session::AuthMethod;
use contract::{ProblemKind, Secret};
use database::Error;
use hashing::TokenDigest;
use service::Problem;
use tenancy::{Actor, TenantId, UserId};

use super::factors::digest_of;
use super::passkeys::passkey_account;
use super::{App, Work, invalid};
use crate::domain::account::Account;
use crate::domain::factor::Proof;
use crate::store::factor::{Challenged, NewChallenge, Purpose};
use crate::store::{factor, passkey, user};

/// A completed set-up.
pub(super) struct SetUp {
    /// The account status with the factor.
    pub(super) subject: SubjectRecord,
    pub(super) codes: RecoveryCodes,
    /// The time step of the code; 0 for a passkey.
    pub(super) step: i64,
}

impl App {
    /// Sets up an authenticator app with a challenge that permits it.
    ///
    /// # Errors
    /// Those of [`App::begin_setup`] and [`App::set_up_totp`].
    #[tracing::instrument(skip_all)]
    pub(crate) async fn set_up_totp_at_login(
        &self,
        tenant_id: &TenantId,
        challenge: &Secret,
        address: IpAddr,
    ) -> Result<NewTotp, Problem> {
        let challenged = self.begin_setup(tenant_id, digest_of(challenge)?, address).await?;
        self.set_up_totp(tenant_id, challenged.user_id).await
    }

    /// Returns the options to register a passkey with a challenge that permits it. They have the same challenge.
    ///
    /// # Errors
    /// Those of [`App::begin_setup`]; 409 `passkey_unavailable`.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn set_up_passkey_at_login(
        &self,
        tenant_id: &TenantId,
        challenge: &Secret,
        address: IpAddr,
    ) -> Result<PasskeyOptions, Problem> {
        let (party, digest) = (self.relying_party()?, digest_of(challenge)?);
        let Challenged { user_id, expires_at, .. } = self.begin_setup(tenant_id, digest, address).await?;
        let mut tx = self.begin(tenant_id, Actor::User { user_id }).await?;
        let account = tx.lock_account(user_id).await?.email;
        let user_handle = passkey::user_handle(&mut tx, user_id).await?;
        let names = (&*passkey_account(&account, tenant_id), &*account);
        let public_key = party.creation_options(digest.as_bytes(), user_handle, names, std::iter::empty());
        Ok(PasskeyOptions { challenge: challenge.clone(), expires_at, public_key })
    }

    /// Returns the user of a challenge for a set-up.
    ///
    /// # Errors
    /// 400 `token_invalid` if the challenge is not active or not one for a set-up; 401 `login_failed` if the account cannot log in.
    async fn begin_setup(
        &self,
        tenant_id: &TenantId,
        digest: TokenDigest,
        address: IpAddr,
    ) -> Result<Challenged, Problem> {
        let challenged = self.find_challenged(tenant_id, digest).await?;
        if challenged.purpose != Purpose::SetUp {
            return Err(ProblemKind::TokenInvalid.into());
        }
        let verified = self.resume_challenged(tenant_id, &challenged, address).await?;
        self.postpone(verified).await?;
        Ok(challenged)
    }

    /// Confirms the new authenticator app of a user with its first code, or registers a passkey, which uses up all challenges. A wrong code
    /// counts at the challenge only: nothing can be guessed with it. Returns the method.
    pub(super) async fn set_up_factor(
        &self,
        account: &Account,
        digest: TokenDigest,
        proof: &Proof<'_>,
    ) -> Result<(AuthMethod, SetUp), Problem> {
        let (user_id, version) = (account.subject.user_id, account.subject.credential_version);
        let mut tx = self.begin(&account.tenant.tenant_id, Actor::User { user_id }).await?;
        tx.count_attempt(user_id, digest, version, Purpose::SetUp).await?;
        // A factor that was added while the challenge was created is not bypassed.
        if factor::exists(&mut tx, user_id).await? {
            return Err(ProblemKind::TokenInvalid.into());
        }
        let added = match tx.add_first_factor(account, digest, proof).await? {
            Ok((method, codes)) => {
                let set_up = tx.set_up(user_id, codes).await?;
                set_up.map(|set_up| (method, set_up)).ok_or_else(|| ProblemKind::SecondFactorFailed.into())
            }
            Err(problem) => Err(problem),
        };
        tx.commit().await?;
        self.factor_attempts.count(proof.method(), added.is_ok());
        added
    }

    /// Permits a repetition of the request that has set up the factor: the client did not get the recovery codes.
    pub(super) async fn reopen_setup(
        &self,
        account: &Account,
        digest: TokenDigest,
        network: Option<String>,
        step: i64,
    ) -> Result<(), Error> {
        let (user_id, version) = (account.subject.user_id, account.subject.credential_version);
        let purpose = Purpose::RepeatSetUp;
        let challenge = NewChallenge { digest, credential_version: version, purpose, network };
        let mut tx = self.begin(&account.tenant.tenant_id, Actor::User { user_id }).await?;
        if user::lock_active(&mut tx, user_id).await? == Some(version) {
            factor::insert_challenge(&mut tx, user_id, &challenge).await?;
            factor::release_step(&mut tx, user_id, step).await?;
        }
        tx.commit().await
    }
}

impl Work<'_> {
    /// Adds the factor of a proof to a locked user. Returns its method and the recovery codes. The inner error is that of a wrong proof,
    /// which counts.
    async fn add_first_factor(
        &mut self,
        account: &Account,
        digest: TokenDigest,
        proof: &Proof<'_>,
    ) -> Result<Result<(AuthMethod, RecoveryCodes), Problem>, Problem> {
        let (user_id, email) = (account.subject.user_id, &account.email);
        let wrong = || Problem::from(ProblemKind::SecondFactorFailed);
        Ok(match proof {
            Proof::Totp(code) => match self.confirm_totp(user_id, email, *code).await {
                Ok(codes) => codes.map(|codes| (AuthMethod::Otp, codes)).ok_or_else(wrong),
                // The client has requested no app.
                Err(problem) if problem.kind() == ProblemKind::NotFound => Err(wrong()),
                Err(problem) => return Err(problem),
            },
            Proof::Registration { name, credential } => {
                match self.app.relying_party()?.register(credential, digest.as_bytes()) {
                    Ok(passkey) => {
                        let (_, codes) = self.insert_passkey(user_id, email, name, &passkey).await?;
                        Ok((passkey.amr(), codes))
                    }
                    Err(error) => Err(invalid("/credential", error.to_string())),
                }
            }
            Proof::Recovery(_) | Proof::Passkey(_) => Err(wrong()),
        })
    }

    /// Returns what the response of a set-up contains, if the user still exists.
    pub(super) async fn set_up(
        &mut self,
        user_id: UserId,
        codes: RecoveryCodes,
    ) -> Result<Option<SetUp>, Error> {
        let subject = user::find_record(self, user_id).await?;
        let app = factor::find_totp(self, user_id).await?.filter(|totp| totp.is_confirmed);
        Ok(subject.map(|subject| SetUp { subject, codes, step: app.map_or(0, |totp| totp.last_step) }))
    }
}
