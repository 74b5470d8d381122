//! The second step of a login: a challenge after the right password, and the code or the passkey that answers it.
//!
//! The password step ends as an objection: neither a success nor a failure. The code step is a separate attempt, and only its success
//! is the success of the login. Wrong codes and passkeys are counted separately from wrong passwords. All steps lock the user first, so
//! that a challenge, a code and a change of the factors cannot overlap.
//!
//! A user who must have a factor and has none gets a challenge that permits only the [set-up](super::factor_setup).

use std::net::IpAddr;

use audit::{AuditEvent, EventName, FailedAttempt};
use contract::ProblemKind;
use contract::Secret;
use contract::factors::{Assertion, FactorMethod, Registration, UseFactor};
use contract::problem::SecondFactor;
use contract::session::AuthMethod;
use database::Error;
use hashing::{RawToken, TokenDigest, TokenKind};
use ratelimit::source;
use service::{Problem, chain};
use tenancy::{Actor, TenantId, UserId};

use super::factor_setup::SetUp;
use super::factors::digest_of;
use super::login::{Client, LoggedIn};
use super::login_attempt::Verified;
use super::passkeys::passkey_name;
use super::{App, Work, invalid};
use crate::domain::account::{Account, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::factor::{Failures, Proof, RecoveryCode, TotpCode};
use crate::domain::passkey;
use crate::domain::throttle::Purpose;
use crate::message::FactorChange;
use crate::store::factor::{Challenged, NewChallenge, Purpose as ChallengePurpose};
use crate::store::{self, factor, user};

/// An accepted code or passkey.
struct Accepted {
    /// How the user authenticated.
    amr: Vec<AuthMethod>,
    /// What the response of a set-up contains.
    set_up: Option<SetUp>,
}

/// The key of the secrets is not configured, or another one. The code was not verified.
#[derive(Debug, thiserror::Error)]
#[error("the secret of the authenticator app cannot be decrypted; check SVC_FACTOR_KEY")]
struct SecretUnavailable;

impl App {
    /// Returns the problem of a login with the right password of a user who has a second factor, or must set one up.
    pub(super) async fn challenge(&self, account: &Account, client: &Client) -> Problem {
        match self.create_challenge(account, client).await {
            Ok(Some((kind, challenge))) => Problem::new(kind).second_factor(challenge),
            Ok(None) => ProblemKind::LoginFailed.into(),
            Err(error) => error.into(),
        }
    }

    /// Creates a challenge; `None` if the password has changed, the last factor was removed or the user was disabled since the
    /// password was verified. A factor that was added since then is required.
    async fn create_challenge(
        &self,
        account: &Account,
        client: &Client,
    ) -> Result<Option<(ProblemKind, SecondFactor)>, Error> {
        let (user_id, version) = (account.subject.user_id, account.subject.credential_version);
        let token = RawToken::generate(TokenKind::Challenge, &*self.entropy);
        let mut tx = self.begin(&account.tenant.tenant_id, Actor::User { user_id }).await?;
        if user::lock_active(&mut tx, user_id).await? != Some(version) {
            return Ok(None);
        }
        let is_setup = !factor::exists(&mut tx, user_id).await?;
        if is_setup && account.subject.has_factor {
            return Ok(None);
        }
        let (kind, purpose) = if is_setup {
            (ProblemKind::SecondFactorSetupRequired, ChallengePurpose::SetUp)
        } else {
            (ProblemKind::SecondFactorRequired, ChallengePurpose::LogIn)
        };
        let digest = token.digest();
        let network = network_of(client.address);
        let challenge = NewChallenge { digest, credential_version: version, purpose, network };
        let expires_at = factor::insert_challenge(&mut tx, user_id, &challenge).await?;
        let totp = factor::find_totp(&mut tx, user_id).await?.filter(|totp| totp.is_confirmed);
        let passkeys = store::passkey::list(&mut tx, user_id).await?;
        let has_codes = factor::count_recovery_codes(&mut tx, user_id).await? > 0;
        let about = if is_setup { "second_factor_setup" } else { "second_factor" };
        let event = AuditEvent::new(EventName::AuthnLoginChallenge).about(about).user(user_id);
        tx.audit(AuditEvent { ip: Some(client.address), ..event.by(Actor::Anonymous) });
        tx.commit().await?;
        let ids = passkeys.iter().map(|stored| &*stored.passkey.credential_id);
        let party = self.relying_party.as_ref().filter(|_| !passkeys.is_empty());
        let public_key = party.map(|party| party.request_options(digest.as_bytes(), ids));
        let has = |method: &FactorMethod| match method {
            FactorMethod::Totp if is_setup => self.config.factor_keys.is_some(),
            FactorMethod::Totp => totp.is_some(),
            FactorMethod::Passkey if is_setup => self.relying_party.is_some(),
            FactorMethod::Passkey => public_key.is_some(),
            FactorMethod::RecoveryCode => has_codes && !is_setup,
        };
        let methods = FactorMethod::ALL.iter().copied().filter(has).collect();
        let challenge = Secret::new(token.expose());
        Ok(Some((kind, SecondFactor { challenge, methods, expires_at, public_key })))
    }

    /// Completes a login with a second factor.
    ///
    /// # Errors
    /// 400 `token_invalid` if the challenge is not active; 401 `second_factor_failed` for a wrong code or passkey; 422 for an invalid new
    /// passkey; 429 `rate_limited` after too many wrong ones; 503 if the code was not verified.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn use_factor(
        &self,
        tenant_id: &TenantId,
        request: &UseFactor,
        client: Client,
    ) -> Result<LoggedIn, Problem> {
        let proof = proof_of(request)?;
        let digest = digest_of(&request.challenge)?;
        let challenged = self.find_challenged(tenant_id, digest).await?;
        let verified = self.resume_challenged(tenant_id, &challenged, client.address).await?;
        let account = verified.account().clone();
        let checked = if challenged.purpose == ChallengePurpose::SetUp {
            let added = self.set_up_factor(&account, digest, &proof).await;
            added.map(|(method, set_up)| Accepted { amr: amr(Some(method)), set_up: Some(set_up) })
        } else {
            self.check_factor(&account, digest, &proof, &client, challenged.purpose).await
        };
        let step =
            checked.as_ref().ok().and_then(|accepted| accepted.set_up.as_ref()).map(|set_up| set_up.step);
        let network = network_of(client.address);
        let issued = self.complete(verified, checked, client).await;
        if let (Err(_), Some(step)) = (&issued, step)
            && let Err(error) = self.reopen_setup(&account, digest, network, step).await
        {
            tracing::warn!(error = chain(&error), %tenant_id, "failed to reopen the set-up of a second factor");
        }
        issued
    }

    /// Ends the attempt and requests the session.
    async fn complete(
        &self,
        verified: Verified,
        checked: Result<Accepted, Problem>,
        client: Client,
    ) -> Result<LoggedIn, Problem> {
        let (mut account, Accepted { amr, set_up }) = self.settle(verified, checked).await?;
        let recovery_codes = set_up.map(|set_up| {
            account.subject = set_up.subject;
            set_up.codes.recovery_codes
        });
        let mut login = self.issue(account, client, amr).await?;
        login.session.recovery_codes = recovery_codes;
        Ok(login)
    }

    /// Begins the second step of a login.
    pub(super) async fn resume_challenged(
        &self,
        tenant_id: &TenantId,
        challenged: &Challenged,
        address: IpAddr,
    ) -> Result<Verified, Problem> {
        let (account, target) = (
            AccountRef::Email(tenant_id, &challenged.email),
            AccountRef::User(tenant_id, challenged.user_id),
        );
        let attempt = self.begin_attempt(account, target, address, Purpose::SecondFactor).await?;
        self.resume(attempt, |_| true).await
    }

    pub(super) async fn find_challenged(
        &self,
        tenant_id: &TenantId,
        digest: TokenDigest,
    ) -> Result<Challenged, Problem> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        Ok(factor::find_challenged(&mut tx, digest).await?.ok_or(ProblemKind::TokenInvalid)?)
    }

    /// Checks a code or a passkey and uses it up with the challenge.
    async fn check_factor(
        &self,
        account: &Account,
        digest: TokenDigest,
        proof: &Proof<'_>,
        client: &Client,
        purpose: ChallengePurpose,
    ) -> Result<Accepted, Problem> {
        let (user_id, version) = (account.subject.user_id, account.subject.credential_version);
        let mut tx = self.begin(&account.tenant.tenant_id, Actor::User { user_id }).await?;
        tx.count_attempt(user_id, digest, version, purpose).await?;
        let failures = factor::find_failures(&mut tx, user_id).await?;
        let accepted = match proof {
            Proof::Totp(_) | Proof::Passkey(_) if failures.is_locked(tx.now()) => {
                let rest = (failures.window_ends_at - tx.now()).to_std().unwrap_or_default();
                Err(Problem::new(ProblemKind::RateLimited)
                    .detail(
                        "Too many codes or passkeys were wrong. Use a recovery code, wait, or ask an administrator.",
                    )
                    .retry_after(rest))
            }
            Proof::Totp(code) => {
                tx.use_totp(user_id, *code).await.map(|is_right| is_right.then_some(Some(AuthMethod::Otp)))
            }
            Proof::Recovery(code) => tx
                .use_recovery_code(user_id, &account.email, code)
                .await
                .map(|is_right| is_right.then_some(None)),
            Proof::Passkey(assertion) => {
                tx.use_passkey(user_id, digest, assertion).await.map(|method| method.map(Some))
            }
            // Nothing signs a registration. Only the client that has registered the passkey has the challenge of a repetition.
            Proof::Registration { credential, .. } if purpose == ChallengePurpose::RepeatSetUp => {
                tx.find_registered(user_id, digest, credential).await.map(|method| method.map(Some))
            }
            Proof::Registration { .. } => Ok(None),
        };
        let result = match accepted {
            Ok(Some(method)) => {
                factor::delete_challenges(&mut tx, user_id, Some(digest)).await?;
                let set_up = if purpose == ChallengePurpose::RepeatSetUp {
                    let codes = tx.create_recovery_codes(user_id).await?;
                    tx.set_up(user_id, codes).await?
                } else {
                    None
                };
                Ok(Accepted { amr: amr(method), set_up })
            }
            Ok(None) => {
                tx.count_wrong_answer(account, client, failures).await?;
                Err(ProblemKind::SecondFactorFailed.into())
            }
            // The attempt at the challenge counts.
            Err(problem) if problem.kind() == ProblemKind::RateLimited => Err(problem),
            Err(problem) => return Err(problem),
        };
        tx.commit().await?;
        self.factor_attempts.count(proof.method(), result.is_ok());
        result
    }
}

impl Work<'_> {
    /// Locks an active user and counts an attempt at a challenge.
    ///
    /// # Errors
    /// 400 `token_invalid` if the challenge is not active, or the password has changed since it was verified.
    pub(super) async fn count_attempt(
        &mut self,
        user_id: UserId,
        digest: TokenDigest,
        credential_version: i64,
        purpose: ChallengePurpose,
    ) -> Result<(), Problem> {
        let is_current = user::lock_active(self, user_id).await? == Some(credential_version)
            && factor::count_attempt(self, user_id, digest, credential_version, purpose).await?;
        if is_current { Ok(()) } else { Err(ProblemKind::TokenInvalid.into()) }
    }

    /// Uses a code of the authenticator app. Returns whether it is right and was not used before.
    async fn use_totp(&mut self, user_id: UserId, code: TotpCode) -> Result<bool, Problem> {
        let found = factor::find_totp(self, user_id).await?.filter(|totp| totp.is_confirmed);
        let Some(totp) = found else { return Ok(false) };
        let now = self.now();
        let (app, owner) = (self.app, (self.tenant_id(), user_id));
        let keys = app.config.factor_keys.as_ref().map(service::config::Live::get);
        let opened = keys.and_then(|keys| {
            let secret = keys.open(&totp.secret, owner)?;
            let renewed = keys.renew(&secret, &totp.secret, owner, &*app.entropy);
            Some((secret, renewed))
        });
        let (secret, renewed) = opened
            .ok_or_else(|| Problem::new(ProblemKind::DependencyUnavailable).caused_by(SecretUnavailable))?;
        let Some(step) = secret.step_of(code, now, totp.last_step) else { return Ok(false) };
        Ok(factor::use_step(self, totp.factor_id, step, renewed.as_deref()).await?)
    }

    /// Uses a passkey for a challenge. Returns its method, if the assertion is valid.
    async fn use_passkey(
        &mut self,
        user_id: UserId,
        challenge: TokenDigest,
        assertion: &Assertion,
    ) -> Result<Option<AuthMethod>, Problem> {
        let id = passkey::credential_id(assertion);
        let mut passkeys = store::passkey::list(self, user_id).await?.into_iter();
        let found = passkeys.find(|stored| id.as_deref() == Some(&*stored.passkey.credential_id));
        let (Some(stored), Some(party)) = (found, &self.app.relying_party) else { return Ok(None) };
        match party.verify(assertion, &stored, challenge.as_bytes()) {
            Ok(sign_count) => {
                let is_used = store::passkey::mark_used(self, stored.factor_id, sign_count).await?;
                Ok(is_used.then(|| stored.passkey.amr()))
            }
            Err(error) => {
                let (tenant_id, factor_id) = (self.tenant_id(), stored.factor_id);
                tracing::info!(%error, %tenant_id, %user_id, %factor_id, "passkey rejected");
                Ok(None)
            }
        }
    }

    /// Returns the method of a passkey that an earlier request has registered for the challenge, if this is the same registration.
    async fn find_registered(
        &mut self,
        user_id: UserId,
        challenge: TokenDigest,
        registration: &Registration,
    ) -> Result<Option<AuthMethod>, Problem> {
        let registered = self.app.relying_party()?.register(registration, challenge.as_bytes());
        let Ok(registered) = registered else { return Ok(None) };
        let mut passkeys = store::passkey::list(self, user_id).await?.into_iter();
        Ok(passkeys.any(|stored| stored.passkey == registered).then(|| registered.amr()))
    }

    /// Uses a recovery code. Returns whether the user had it.
    async fn use_recovery_code(
        &mut self,
        user_id: UserId,
        email: &EmailKey,
        code: &RecoveryCode,
    ) -> Result<bool, Problem> {
        let is_used = factor::use_recovery_code(self, user_id, code.digest()).await?;
        if is_used {
            self.factor_changed(user_id, email, FactorChange::RecoveryCodeUsed).await?;
        }
        Ok(is_used)
    }

    /// Counts a wrong code or passkey. The last one of a day locks the app and the passkeys of the user.
    async fn count_wrong_answer(
        &mut self,
        account: &Account,
        client: &Client,
        before: Failures,
    ) -> Result<(), Error> {
        let (user_id, now) = (account.subject.user_id, self.now());
        let source = source(client.address).to_string();
        let attempt = FailedAttempt { tenant_exists: true, user_id: Some(user_id), source: &source };
        let ip = Some(client.address);
        let event = |name| AuditEvent { ip, ..AuditEvent::new(name).user(user_id).by(Actor::Anonymous) };
        self.audit_failure(attempt, event(EventName::AuthnFactorFail));
        let failures = before.fail(now);
        factor::save_failures(self, user_id, failures).await?;
        if failures.is_locked(now) && !before.is_locked(now) {
            self.audit(event(EventName::AuthnFactorLock).by(Actor::System));
            self.mail_factor_notice(user_id, &account.email, FactorChange::Locked).await?;
        }
        Ok(())
    }
}

/// How a user authenticated with the password and a second factor (RFC 8176).
fn amr(method: Option<AuthMethod>) -> Vec<AuthMethod> {
    [Some(AuthMethod::Pwd), method, Some(AuthMethod::Mfa)].into_iter().flatten().collect()
}

/// Returns the network of the challenges of a client: the widest one, because an IPv6 customer can have many small ones.
fn network_of(address: IpAddr) -> Option<String> {
    source(address).networks().last().map(|network| network.name.clone())
}

/// Returns the code, the assertion or the new passkey of a request.
///
/// # Errors
/// 422 if there is not exactly one, or a code is malformed. Such a code does not count.
fn proof_of(request: &UseFactor) -> Result<Proof<'_>, Problem> {
    match (&request.code, &request.recovery_code, &request.assertion, &request.credential) {
        (Some(code), None, None, None) => {
            let code = TotpCode::parse(code.expose()).map(Proof::Totp);
            code.ok_or_else(|| invalid("/code", "must have six digits"))
        }
        (None, Some(code), None, None) => {
            let code = RecoveryCode::parse(code.expose()).map(Proof::Recovery);
            code.ok_or_else(|| invalid("/recovery_code", "must have 16 letters and digits from 2 to 7"))
        }
        (None, None, Some(assertion), None) => Ok(Proof::Passkey(assertion)),
        (None, None, None, Some(credential)) => {
            let name = passkey_name(request.name.as_deref().unwrap_or_default())?;
            Ok(Proof::Registration { name, credential })
        }
        _ => Err(invalid("/code", "send either code, recovery_code, assertion or credential")),
    }
}
