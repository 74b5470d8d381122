//! Login with a passkey alone: with verification of the user, it is two factors at once.
//!
//! A client without the passkey causes no write. A challenge is signed instead of stored, and an assertion without a valid signature ends
//! after one lookup, whether or not the passkey exists. So such a client cannot fill a table or an audit log, and cannot delay or lock an
//! account. Only after a valid signature begins an attempt, which the throttle and the account can reject.

use contract::ProblemKind;
use contract::factors::{Assertion, PasskeyLoginOptions};
use contract::session::AuthMethod;
use prometheus_client::metrics::counter::Counter;
use service::Problem;
use service::telemetry::Metrics;
use tenancy::{Actor, TenantId};

use super::App;
use super::login::{Client, LoggedIn};
use crate::domain::account::AccountRef;
use crate::domain::passkey::{InvalidPasskey, LoginChallenge, credential_id, user_handle};
use crate::domain::throttle::Purpose;
use crate::store::passkey::FoundPasskey;
use crate::store::{passkey, user};

/// Logins with a passkey alone, by result.
#[derive(Clone)]
pub(crate) struct PasskeyLogins {
    accepted: Counter,
    rejected: Counter,
}

impl PasskeyLogins {
    /// Registers the counters.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter =
            |result| metrics.metric("passkey_logins", "Logins with a passkey alone", &[("result", result)]);
        Self { accepted: counter("accepted"), rejected: counter("rejected") }
    }
}

impl App {
    /// Returns the options of a login with a passkey, with a challenge.
    ///
    /// # Errors
    /// 409 `passkey_unavailable`.
    pub(crate) fn start_passkey_login(&self) -> Result<PasskeyLoginOptions, Problem> {
        let party = self.relying_party()?;
        let challenge =
            LoginChallenge::issue(&self.config.limiter_keys.get(), &*self.entropy, self.clock.now());
        let public_key = party.request_options(challenge.as_bytes(), std::iter::empty());
        Ok(PasskeyLoginOptions { expires_at: challenge.expires_at(), public_key })
    }

    /// Logs in with a passkey. `tenant_id` is the tenant that the request names: another one than that of the passkey is rejected.
    ///
    /// # Errors
    /// 400 `token_invalid` if the challenge is expired, used or not one of [`App::start_passkey_login`]; 401 `login_failed` for every other
    /// rejected login; 429 if too many logins of the account are in flight; 503.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn log_in_with_passkey(
        &self,
        tenant_id: Option<&TenantId>,
        assertion: &Assertion,
        client: Client,
    ) -> Result<LoggedIn, Problem> {
        let result = self.try_passkey(tenant_id, assertion, client).await;
        let PasskeyLogins { accepted, rejected } = &self.passkey_logins;
        // An error of the service is neither.
        let counter = match &result {
            Ok(_) => Some(accepted),
            Err(problem) => (problem.kind().status() < 500).then_some(rejected),
        };
        counter.map(Counter::inc);
        result
    }

    async fn try_passkey(
        &self,
        named: Option<&TenantId>,
        assertion: &Assertion,
        client: Client,
    ) -> Result<LoggedIn, Problem> {
        let party = self.relying_party()?;
        let challenge = LoginChallenge::of(assertion, &self.config.limiter_keys.get(), self.clock.now());
        let challenge = challenge.ok_or(ProblemKind::TokenInvalid)?;
        let id = credential_id(assertion).ok_or(ProblemKind::LoginFailed)?;
        // No user has the handle 0.
        let handle = user_handle(assertion).unwrap_or_default();
        let found = passkey::find(&self.database, id, handle).await?.ok_or(ProblemKind::LoginFailed)?;
        let verified = party.verify_discoverable(assertion, &found.stored, challenge.as_bytes());
        if let Err(error) = &verified {
            let (tenant_id, user_id) = (&found.tenant_id, found.user_id);
            let factor_id = found.stored.factor_id;
            tracing::info!(%error, %tenant_id, %user_id, %factor_id, "passkey rejected");
        }
        // A counter that is too low has a valid signature. The owner can find it in the audit log.
        let sign_count = match verified {
            Ok(sign_count) => Some(sign_count),
            Err(InvalidPasskey::Counter) => None,
            Err(_) => return Err(ProblemKind::LoginFailed.into()),
        };
        let (tenant_id, is_named) = (&found.tenant_id, named.is_none_or(|named| *named == found.tenant_id));
        let account = AccountRef::Email(tenant_id, &found.email);
        let target = AccountRef::User(tenant_id, found.user_id);
        let attempt = self.begin_attempt(account, target, client.address, Purpose::Passkey).await?;
        let resumed =
            self.resume(attempt, |account| account.passkey_login && is_named && sign_count.is_some()).await?;
        let used = self.use_passkey(&found, sign_count.unwrap_or_default(), &challenge).await;
        let (account, ()) = self.settle(resumed, used).await?;
        let amr = vec![found.stored.passkey.amr(), AuthMethod::Mfa];
        self.issue(account, client, amr).await
    }

    /// Uses up the counter and the challenge.
    async fn use_passkey(
        &self,
        FoundPasskey { tenant_id, user_id, stored, .. }: &FoundPasskey,
        sign_count: u32,
        challenge: &LoginChallenge,
    ) -> Result<(), Problem> {
        let mut tx = self.begin(tenant_id, Actor::User { user_id: *user_id }).await?;
        let is_valid = user::lock_active(&mut tx, *user_id).await?.is_some()
            && passkey::mark_used(&mut tx, stored.factor_id, sign_count).await?;
        if !is_valid {
            return Err(ProblemKind::LoginFailed.into());
        }
        if !passkey::use_challenge(&mut tx, *user_id, challenge.as_bytes(), challenge.expires_at()).await? {
            return Err(ProblemKind::TokenInvalid.into());
        }
        Ok(tx.commit().await?)
    }
}
