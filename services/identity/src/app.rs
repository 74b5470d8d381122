//! The use cases, one file per noun, and their unit of work.

mod account_status;
mod api_keys;
pub(crate) mod invites;
pub(crate) mod login;
mod login_attempt;
mod passwords;
mod resets;
mod tenants;
mod users;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use audit::{AuditEvent, AuditLog};
use authn::{PlatformSecret, ServiceSecret, SessionClient};
use chrono::{DateTime, TimeDelta, Utc};
use database::{Database, Error, TenantTx};
use hashing::{Entropy, HashPool};
use prometheus_client::metrics::counter::Counter;
use ratelimit::Limiter;
use service::{Clock, Tasks};
use tenancy::{Actor, TenantScope};
use url::Url;

use crate::breach_set::BreachSet;
use crate::config::RateLimits;
use crate::domain::account::LimiterKeys;
use crate::domain::email::EmailKey;
use crate::domain::password::PasswordPolicy;
use crate::message::Message;
use crate::store::recipient::{self, MailLimit};

/// The dependencies of the use cases. Clones share them.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) database: Database,
    pub(crate) sessions: SessionClient,
    pub(crate) hashes: Arc<HashPool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) tasks: Tasks,
    pub(crate) policy: PasswordPolicy,
    pub(crate) breach_set: Option<Arc<BreachSet>>,
    pub(crate) invite_ttl: TimeDelta,
    pub(crate) max_pending_invites: i64,
    pub(crate) reset_ttl: TimeDelta,
    pub(crate) can_mail: bool,
    /// The public origin.
    pub(crate) public_url: Url,
    pub(crate) platform_secret: PlatformSecret,
    /// The secret of the internal API.
    pub(crate) service_secret: ServiceSecret,
    pub(crate) audit: AuditLog,
    pub(crate) limiter: Limiter,
    pub(crate) limiter_keys: LimiterKeys,
    pub(crate) rate_limits: RateLimits,
    /// Reset requests that sent no mail. Labels would reveal which accounts exist.
    pub(crate) resets_dropped: Counter,
}

/// The unit of work of a use case: a transaction with the audit events and messages of the service.
pub(crate) struct Work<'a> {
    tx: TenantTx,
    app: &'a App,
}

impl App {
    /// Begins a unit of work.
    pub(crate) async fn begin(&self, scope: &TenantScope, actor: Actor) -> Result<Work<'_>, Error> {
        let tx = self.database.begin(scope, actor, self.clock.now()).await?;
        Ok(Work { tx, app: self })
    }
}

impl Work<'_> {
    /// Records an audit event.
    pub(crate) fn audit(&mut self, event: AuditEvent) {
        self.app.audit.record(&mut self.tx, event);
    }

    /// Sends a message through the outbox. A change of account status is also pushed after the commit, so that it takes effect
    /// before the response.
    pub(crate) fn send(&mut self, message: &Message) {
        self.tx.send(message);
        if let Message::PushUserStatus { .. } | Message::PushTenantStatus = message {
            let (app, tenant_id, message) = (self.app.clone(), self.tx.tenant_id().clone(), message.clone());
            self.tx.after_commit(async move { app.push_now(&tenant_id, &message).await });
        }
    }

    /// Counts a mail to a recipient over all tenants. Returns the time of the next one if the recipient already has the maximum.
    pub(crate) async fn count_mail(
        &mut self,
        limit: &MailLimit,
        email: &EmailKey,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        let recipient = self.app.limiter_keys.recipient(email);
        let next_at = recipient::count_mail(self, limit, &recipient).await?;
        let decisions = self.app.limiter.metrics();
        match next_at {
            None => decisions.allowed(limit.name),
            Some(_) => decisions.rejected(limit.name),
        }
        Ok(next_at)
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
