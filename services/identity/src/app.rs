//! The use cases, one file per noun, and their unit of work.

mod account_status;
mod api_keys;
mod erasure;
pub(crate) mod factor_attempts;
pub(crate) mod factor_rotation;
mod factor_setup;
mod factors;
pub(crate) mod invites;
pub(crate) mod login;
mod login_attempt;
mod mails;
pub(crate) mod managed_tenants;
pub(crate) mod passkey_login;
mod passkeys;
mod passwords;
mod resets;
pub(crate) mod second_factor;
mod tenants;
mod users;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use authn::{CredentialVerifier, SessionClient};
use contract::ProblemKind;
use database::{Database, Error, TenantTx};
use hashing::{Entropy, HashPool, RawToken, TokenDigest, TokenKind};
use prometheus_client::metrics::counter::Counter;
use ratelimit::{Limit, Limiter, Rate, RateLimitError, Source, source};
use service::{Clock, Problem, Tasks};
use tenancy::{Actor, TenantId};
use tokio::sync::watch;

use self::factor_attempts::FactorAttempts;
use self::passkey_login::PasskeyLogins;
use crate::config::Config;
use crate::domain::email::EmailKey;
use crate::domain::passkey::RelyingParty;
use crate::domain::password::PasswordPolicy;
use crate::domain::password_costs::PasswordCosts;
use crate::message::Message;

/// The addresses of a mailbox that differ in their tag get as many mails together as this number of addresses. Their number is
/// otherwise unlimited.
const TAGGED_ADDRESSES: u32 = 4;

/// A kind of mail with its limit per recipient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MailLimit {
    limit: Limit,
    /// Whether each tenant has its own count. Otherwise all tenants share one.
    per_tenant: bool,
}

/// The use cases. A clone for each request shares the dependencies.
#[derive(Clone)]
pub(crate) struct App(Arc<Dependencies>);

/// The dependencies of the use cases.
pub(crate) struct Dependencies {
    pub(crate) database: Database,
    pub(crate) sessions: SessionClient,
    pub(crate) verifier: Arc<dyn CredentialVerifier>,
    pub(crate) hashes: Arc<HashPool>,
    /// Empty until the first count.
    pub(crate) password_costs: watch::Sender<PasswordCosts>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) tasks: Tasks,
    pub(crate) policy: PasswordPolicy,
    pub(crate) config: Config,
    pub(crate) can_mail: bool,
    pub(crate) limiter: Limiter,
    /// `None` if the public origin permits no passkeys.
    pub(crate) relying_party: Option<RelyingParty>,
    /// Reset requests that sent no mail. Labels would reveal which accounts exist.
    pub(crate) resets_dropped: Counter,
    pub(crate) factor_attempts: FactorAttempts,
    pub(crate) passkey_logins: PasskeyLogins,
}

/// The unit of work of a use case: a transaction with the audit events and messages of the service.
pub(crate) struct Work<'a> {
    tx: TenantTx,
    app: &'a App,
}

impl MailLimit {
    /// Allows `count` mails at once, then as many per hour at an even rate. All tenants share one count.
    pub(crate) const fn per_hour(name: &'static str, count: NonZeroU32) -> Self {
        Self { limit: Limit { name, rate: Some(Rate::per_hour(count)) }, per_tenant: false }
    }

    /// Counts the mails of each tenant separately.
    pub(crate) const fn per_tenant(self) -> Self {
        Self { per_tenant: true, ..self }
    }
}

impl Deref for App {
    type Target = Dependencies;

    fn deref(&self) -> &Dependencies {
        &self.0
    }
}

impl App {
    pub(crate) fn new(dependencies: Dependencies) -> Self {
        Self(Arc::new(dependencies))
    }

    /// Begins a unit of work.
    pub(crate) async fn begin(&self, tenant_id: &TenantId, actor: Actor) -> Result<Work<'_>, Error> {
        let tx = self.database.begin(tenant_id, actor, self.clock.now()).await?;
        Ok(Work { tx, app: self })
    }

    /// Finds the invite or the reset of a token. Returns the digest, the id, and the tenant. Unknown tokens count against the limit of
    /// the address. Valid ones do not, because people behind one address open their invites at the same time; each counts for
    /// itself, so that it cannot cause lookups and hashes without limit. Above this limit, a request needs no statement.
    async fn find_by_token<Id, F>(
        &self,
        kind: TokenKind,
        raw_token: &str,
        address: IpAddr,
        find: impl FnOnce(TokenDigest) -> F,
    ) -> Result<(TokenDigest, Id, TenantId), Problem>
    where
        F: Future<Output = Result<Option<(Id, TenantId)>, Error>>,
    {
        let limit = &self.config.rate_limits.token;
        let parsed = RawToken::parse(kind, raw_token).map(|token| token.digest());
        if let Ok(digest) = parsed {
            self.limiter.check(limit, digest.to_hex().as_str())?;
        }
        let lookup = async {
            let digest = parsed.map_err(|_| ProblemKind::TokenInvalid)?;
            let (id, tenant_id) = find(digest).await?.ok_or(ProblemKind::TokenInvalid)?;
            Ok((digest, id, tenant_id))
        };
        let is_wrong = |problem: &Problem| problem.kind() == ProblemKind::TokenInvalid;
        let found = self.limiter.count_wrong(limit, source(address), lookup, is_wrong).await?;
        self.limiter.count(limit, found.0.to_hex().as_str()).await?;
        Ok(found)
    }
}

/// The problem of a request with an invalid field.
pub(crate) fn invalid(pointer: &str, message: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::ValidationFailed).field(pointer, "invalid", message)
}

impl Work<'_> {
    /// Sends a message through the outbox. A change of account status is also pushed after the commit, so that it takes effect
    /// before the response.
    pub(crate) fn send(&mut self, message: &Message) {
        self.tx.send(message);
        if let Message::PushUserStatus { .. } | Message::PushTenantStatus = message {
            let (app, tenant_id, message) = (self.app.clone(), self.tx.tenant_id().clone(), message.clone());
            self.tx.after_commit(async move { app.push_now(&tenant_id, &message).await });
        }
    }

    /// Counts a mail to a recipient.
    ///
    /// # Errors
    /// The recipient already has the maximum, or the database failed.
    pub(crate) async fn count_mail(
        &mut self,
        MailLimit { limit, per_tenant }: &MailLimit,
        email: &EmailKey,
    ) -> Result<(), RateLimitError> {
        let tenant_id = per_tenant.then(|| self.tenant_id().clone());
        let keys = self.app.config.limiter_keys.get();
        let mut recipient = Source::from(&*keys.recipient(tenant_id.as_ref(), email));
        if let Some(mailbox) = email.without_tag() {
            recipient = recipient.within(keys.mailbox(tenant_id.as_ref(), &mailbox), TAGGED_ADDRESSES);
        }
        self.app.limiter.count_in(self.tx.connection(), limit, &recipient).await
    }

    /// Counts a mail to a recipient. Returns whether it can be sent.
    pub(crate) async fn may_mail(&mut self, limit: &MailLimit, email: &EmailKey) -> Result<bool, Error> {
        match self.count_mail(limit, email).await {
            Ok(()) => Ok(true),
            Err(RateLimitError::Limited { .. }) => Ok(false),
            Err(RateLimitError::Unavailable(error)) => Err(error),
        }
    }

    /// Commits, then runs the post-commit actions.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.tx.commit().await
    }
}

impl Deref for Work<'_> {
    type Target = TenantTx;

    fn deref(&self) -> &TenantTx {
        &self.tx
    }
}

impl DerefMut for Work<'_> {
    fn deref_mut(&mut self) -> &mut TenantTx {
        &mut self.tx
    }
}
