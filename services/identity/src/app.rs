//! The use cases, one file per noun, and their unit of work.

mod account_status;
mod api_keys;
mod erasure;
pub(crate) mod invites;
pub(crate) mod login;
mod login_attempt;
pub(crate) mod managed_tenants;
mod passwords;
mod resets;
mod tenants;
mod users;

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use authn::{PlatformSecret, ServiceSecret, SessionClient};
use chrono::TimeDelta;
use contract::ProblemKind;
use database::{Database, Error, TenantTx};
use hashing::{Entropy, HashPool, RawToken, TokenDigest, TokenKind};
use prometheus_client::metrics::counter::Counter;
use ratelimit::{Limiter, source};
use service::config::Live;
use service::{Clock, Problem, Tasks};
use tenancy::{Actor, TenantId};
use tokio::sync::watch;
use url::Url;

use crate::breach_set::BreachSet;
use crate::config::RateLimits;
use crate::domain::account::LimiterKeys;
use crate::domain::email::EmailKey;
use crate::domain::password::PasswordPolicy;
use crate::domain::password_costs::PasswordCosts;
use crate::message::Message;
use crate::store::recipient::{self, MailCount, MailLimit};

/// The addresses of a mailbox that differ in their tag get as many mails together as this number of addresses. Their number is
/// otherwise unlimited.
const TAGGED_ADDRESSES: i32 = 4;

/// The use cases. A clone for each request shares the dependencies.
#[derive(Clone)]
pub(crate) struct App(Arc<Dependencies>);

/// The dependencies of the use cases.
pub(crate) struct Dependencies {
    pub(crate) database: Database,
    pub(crate) sessions: SessionClient,
    pub(crate) hashes: Arc<HashPool>,
    /// Empty until the first count.
    pub(crate) password_costs: watch::Sender<PasswordCosts>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) tasks: Tasks,
    pub(crate) policy: PasswordPolicy,
    pub(crate) breach_set: Option<Arc<BreachSet>>,
    pub(crate) invite_ttl: TimeDelta,
    /// How long a settled invite is kept.
    pub(crate) invite_retention: TimeDelta,
    pub(crate) max_pending_invites: i64,
    pub(crate) max_users: i64,
    pub(crate) reset_ttl: TimeDelta,
    pub(crate) can_mail: bool,
    /// The public origin.
    pub(crate) public_url: Url,
    pub(crate) platform_secret: PlatformSecret,
    /// The secret of the internal API.
    pub(crate) service_secret: ServiceSecret,
    pub(crate) limiter: Limiter,
    pub(crate) limiter_keys: Live<LimiterKeys>,
    pub(crate) rate_limits: RateLimits,
    /// Reset requests that sent no mail. Labels would reveal which accounts exist.
    pub(crate) resets_dropped: Counter,
}

/// The unit of work of a use case: a transaction with the audit events and messages of the service.
pub(crate) struct Work<'a> {
    tx: TenantTx,
    app: &'a App,
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
        let limit = &self.rate_limits.token;
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
    pub(crate) async fn count_mail(
        &mut self,
        limit: &MailLimit,
        email: &EmailKey,
    ) -> Result<MailCount, Error> {
        let keys = self.app.limiter_keys.get();
        let tenant_id = limit.per_tenant.then(|| self.tenant_id().clone());
        let recipient = keys.recipient(tenant_id.as_ref(), email);
        let mut count = recipient::count_mail(self, limit, &recipient).await?;
        if let (MailCount::Allowed { .. }, Some(mailbox)) = (count, email.without_tag()) {
            let limit = MailLimit { per_hour: limit.per_hour * TAGGED_ADDRESSES, ..*limit };
            let mailbox = keys.mailbox(tenant_id.as_ref(), &mailbox);
            let of_mailbox = recipient::count_mail(self, &limit, &mailbox).await?;
            if of_mailbox != (MailCount::Allowed { paused_until: None }) {
                count = of_mailbox;
            }
        }
        let decisions = self.app.limiter.metrics();
        match count {
            MailCount::Allowed { .. } => decisions.allowed(limit.name),
            MailCount::Limited { .. } => decisions.rejected(limit.name),
        }
        Ok(count)
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
