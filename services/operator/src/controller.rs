//! Executes plans. Only the replica that holds the lease runs it.

mod consumers;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::managed::{
    IssuedInvite, ManagedProducer, ManagedTenant, OperatorId, StoredConsumer, StoredProducer,
};
use futures::{StreamExt as _, stream};
use kube::{Resource as _, ResourceExt as _};
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::WriteError;
use crate::guard::Guard;
use crate::kubernetes::{Caches, Kubernetes};
use crate::lease::Term;
use crate::login_secret::LoginSecret;
use crate::memory::Memory;
use crate::metrics::OperatorMetrics;
use crate::plan::{Plan, Write};
use crate::services::{CallError, IdentityClient, IngestClient, SessionClient};
use crate::status::{Kind, Reason, State, Subject};

/// Interval at which the stored state is read, to find changes by others.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the consumers are read: ingest measures each of them.
const CONSUMER_INTERVAL: Duration = Duration::from_secs(15);
/// Delay after a change, so that many changes are one plan.
const DEBOUNCE: Duration = Duration::from_millis(200);
const CONCURRENCY: usize = 8;
/// Writes between two plans, so that the states of many resources do not wait for the last write.
const MAX_WRITES: usize = 100;

/// The dependencies of the controller.
#[derive(Clone)]
pub(crate) struct Controller {
    pub(crate) caches: Caches,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) identity: IdentityClient,
    pub(crate) session: SessionClient,
    /// `None` if the operator does not manage consumers.
    pub(crate) ingest: Option<IngestClient>,
    /// Address of NATS in the Secrets of consumers; empty if it is not known.
    pub(crate) consumer_nats_url: Arc<str>,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) term: Term,
    /// The operators of which this one takes over tenants, producers and consumers.
    pub(crate) take_over_from: Arc<[OperatorId]>,
    /// Releases at the start that the configuration confirms.
    pub(crate) confirmed_releases: usize,
}

/// The result of a write.
enum Written {
    Nothing,
    Tenant {
        changed: bool,
        invite: Option<IssuedInvite>,
        in_secret: bool,
    },
    Invite(IssuedInvite),
    /// The Secret of the invite exists already.
    Kept {
        expires_at: DateTime<Utc>,
    },
    /// A consumer, and the Secret with its login if it was written.
    Consumer {
        stored: Box<StoredConsumer>,
        login: Option<LoginSecret>,
        /// Whether the broker accepts a new login; `None` without a new one.
        active: Option<bool>,
    },
}

impl Controller {
    /// The controller of an operator.
    pub(crate) fn for_operator(self, operator: &OperatorId) -> Self {
        tracing::info!(%operator, "the cluster is identified");
        let (identity, session) = (self.identity.for_operator(operator), self.session.for_operator(operator));
        let ingest = self.ingest.map(|ingest| ingest.for_operator(operator));
        Self { identity, session, ingest, ..self }
    }

    /// Plans and writes until it is cancelled.
    pub(crate) async fn run(&self) {
        self.caches.ready().await;
        let mut memory = Memory::default();
        memory.guard = Guard::new(self.confirmed_releases);
        memory.nats_url = Arc::clone(&self.consumer_nats_url);
        let (mut next_poll, mut next_consumers) = (Instant::now(), Instant::now());
        loop {
            if next_consumers <= Instant::now() {
                self.poll_consumers(&mut memory).await;
                next_consumers = Instant::now() + CONSUMER_INTERVAL;
            }
            if next_poll <= Instant::now() {
                self.poll(&mut memory).await;
                next_poll = Instant::now() + POLL_INTERVAL;
            }
            self.converge(&mut memory, next_poll).await;
            tokio::select! {
                () = self.caches.changed() => sleep(DEBOUNCE).await,
                () = sleep_until(next_poll) => {}
            }
        }
    }

    /// Reads the stored state. If a list cannot be read, the last one remains.
    async fn poll(&self, memory: &mut Memory) {
        let (tenants, producers) = tokio::join!(self.identity.list(), self.session.list());
        match tenants {
            Ok(tenants) => {
                let tenants = tenants.into_iter().map(|stored| (stored.tenant_id.clone(), stored));
                memory.stored_tenants = Some(Arc::new(tenants.collect()));
            }
            Err(error) => tracing::warn!(%error, "failed to read the tenants from identity"),
        }
        match producers {
            Ok(producers) => {
                let producers = producers.into_iter().map(|stored| (stored.uid, stored));
                memory.stored_producers = Some(Arc::new(producers.collect()));
            }
            Err(error) => tracing::warn!(%error, "failed to read the producers from session"),
        }
    }

    /// Writes until the plan has no writes left, or until the next poll. A failed write is planned again after a delay.
    async fn converge(&self, memory: &mut Memory, next_poll: Instant) {
        loop {
            let plan = memory.plan(&self.caches);
            self.metrics.set_resources(&plan);
            self.metrics.set_held(&memory.guard);
            let has_more = self.write_states(&plan, memory).await;
            self.write_all(&plan, memory).await;
            if (plan.writes.is_empty() && !has_more) || next_poll <= Instant::now() {
                return;
            }
        }
    }

    async fn write_all(&self, plan: &Plan, memory: &mut Memory) {
        let writes = stream::iter(plan.writes.iter().take(MAX_WRITES).cloned())
            .map(|write| async move { (self.write(&write).await, write) })
            .buffer_unordered(CONCURRENCY);
        let mut writes = std::pin::pin!(writes);
        while let Some((result, write)) = writes.next().await {
            self.metrics.count_write(result.is_err());
            match result {
                Ok(written) => self.remember(&write, written, memory).await,
                Err(error) => memory.fail(&write, &error),
            }
        }
    }

    async fn write(&self, write: &Write) -> Result<Written, WriteError> {
        self.term.wait_while_valid().await;
        match write {
            Write::SetFinalizer { resource, present } => {
                self.kubernetes.set_finalizer(resource, *present).await?;
            }
            Write::PutTenant { resource, tenant_id, desired } => {
                let take_over_from = self.take_over_from.to_vec();
                let desired = ManagedTenant { take_over_from, ..desired.clone() };
                let written = self.identity.put(tenant_id, &desired).await?;
                let mut in_secret = false;
                if let Some(invite) = &written.invite {
                    // Without the Secret, the next plan gets another token.
                    let result = self.kubernetes.write_invite(resource, invite).await;
                    in_secret = result.inspect_err(log_secret).is_ok();
                }
                return Ok(Written::Tenant { changed: written.changed, invite: written.invite, in_secret });
            }
            Write::RenewInvite { resource, tenant_id, owner, pending_until } => {
                // The cache can be older than the Secret, and a person may have read its token already.
                if let Some(expires_at) = *pending_until
                    && self.kubernetes.invite_expiry(&resource.name_any()).await? == Some(expires_at)
                {
                    return Ok(Written::Kept { expires_at });
                }
                let invite = self.identity.renew_invite(tenant_id, *owner).await?;
                self.kubernetes.write_invite(resource, &invite).await.inspect_err(log_secret)?;
                return Ok(Written::Invite(invite));
            }
            Write::DeleteSecret { resource } => self.kubernetes.delete_invite(&resource.name_any()).await?,
            Write::Suspend { resource, tenant_id, desired } => {
                let result = match self.identity.put(tenant_id, desired).await {
                    Ok(_) => self.identity.release(tenant_id, desired.owner).await,
                    Err(error) => Err(error),
                };
                match result {
                    Ok(()) => self.report_release(write),
                    // The tenant is not owned by the resource, so there is nothing to suspend.
                    Err(CallError::Conflict(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                self.kubernetes.set_finalizer(resource, false).await?;
            }
            Write::Release { tenant_id, owner } => {
                self.identity.release(tenant_id, *owner).await?;
                self.report_release(write);
            }
            Write::PutProducer { uid, producer, .. } => {
                let take_over_from = self.take_over_from.to_vec();
                let write = ManagedProducer { producer: producer.clone(), take_over_from };
                self.session.put(*uid, &write).await?;
            }
            Write::DeleteProducer { uid, tenant_id, is_final } => {
                self.session.delete(*uid, tenant_id, *is_final).await?;
                self.report_release(write);
            }
            Write::PutConsumer { resource, uid, consumer } => {
                return self.put_consumer(resource, *uid, consumer).await;
            }
            Write::PutLogin { resource, uid, stored } => return self.put_login(resource, *uid, stored).await,
            Write::DeleteConsumer { uid, name, not_allowed } => {
                self.delete_consumer(*uid, name, not_allowed.as_deref()).await?;
                self.report_release(write);
            }
        }
        Ok(Written::Nothing)
    }

    /// Records the result of a write, as the next poll would report it.
    async fn remember(&self, write: &Write, written: Written, memory: &mut Memory) {
        if let Some((uid, _)) = write.subject() {
            memory.forget_failure(uid);
        }
        match (write, written) {
            (
                Write::PutTenant { resource, tenant_id, desired },
                Written::Tenant { changed, invite, in_secret },
            ) => {
                let before = memory.stored_tenants.as_ref().and_then(|stored| stored.get(tenant_id));
                let was_stored = before.is_some_and(|stored| stored.owner == desired.owner);
                memory.put_tenant(tenant_id, desired.owner, invite.as_ref());
                if let Some(invite) = invite.filter(|_| in_secret) {
                    memory.put_secret(resource, Some(invite.expires_at));
                }
                if changed && was_stored {
                    let note = "The tenant was changed without its resource. The operator restored the desired state.";
                    self.kubernetes.publish(&resource.object_ref(&()), "DriftCorrected", None, note).await;
                }
            }
            (Write::RenewInvite { resource, .. }, Written::Kept { expires_at }) => {
                memory.put_secret(resource, Some(expires_at));
            }
            (Write::RenewInvite { resource, tenant_id, owner, .. }, Written::Invite(invite)) => {
                memory.put_tenant(tenant_id, *owner, Some(&invite));
                memory.put_secret(resource, Some(invite.expires_at));
                let note = "The Secret has a new token for the invite of the first administrator.";
                self.kubernetes.publish(&resource.object_ref(&()), "InviteRenewed", None, note).await;
            }
            (Write::DeleteSecret { resource }, _) => {
                memory.put_secret(resource, None);
            }
            (Write::SetFinalizer { resource, .. }, _) => memory.mark_outdated(resource),
            (Write::Suspend { tenant_id, resource, .. }, _) => {
                memory.mark_outdated(resource);
                memory.forget_tenant(tenant_id);
            }
            (Write::Release { tenant_id, .. }, _) => memory.forget_tenant(tenant_id),
            (Write::PutProducer { uid, producer, .. }, _) => {
                memory.put_producer(StoredProducer { uid: *uid, producer: producer.clone() });
            }
            (Write::DeleteProducer { uid, .. }, _) => memory.forget_producer(*uid),
            (
                Write::PutConsumer { resource, .. } | Write::PutLogin { resource, .. },
                Written::Consumer { stored, login, active },
            ) => {
                memory.put_consumer(*stored);
                if login.is_some() {
                    memory.put_login(resource, login);
                }
                // A new resource that becomes ready causes no event.
                let is_event = !matches!(write, Write::PutConsumer { .. });
                self.publish_login(resource, active.filter(|active| is_event || !active)).await;
            }
            (Write::DeleteConsumer { uid, not_allowed, .. }, _) => {
                memory.forget_consumer(*uid, not_allowed.is_none());
                if let Some(resource) = not_allowed {
                    memory.put_login(resource, None);
                }
            }
            _ => {}
        }
    }

    /// Logs and counts a release that identity or session has made.
    fn report_release(&self, write: &Write) {
        let kind = match write {
            Write::Release { tenant_id, owner } => {
                tracing::info!(%tenant_id, uid = %owner.uid, "tenant released: its resource does not exist");
                Kind::Tenant
            }
            Write::Suspend { tenant_id, desired, .. } => {
                tracing::info!(%tenant_id, uid = %desired.owner.uid, "tenant released: its resource is being deleted");
                Kind::Tenant
            }
            Write::DeleteProducer { uid, tenant_id, is_final } => {
                let reason =
                    if *is_final { "its resource does not exist" } else { "its tenant does not allow it" };
                tracing::info!(%tenant_id, %uid, reason, "producer deleted");
                Kind::Producer
            }
            Write::DeleteConsumer { uid, name, not_allowed } => {
                let reason = if not_allowed.is_some() {
                    "its login only: its tenant does not allow it"
                } else {
                    "its resource does not exist"
                };
                tracing::info!(consumer = %name, %uid, reason, "consumer deleted");
                Kind::Consumer
            }
            _ => return,
        };
        self.metrics.count_release(kind);
    }

    /// Writes the states that have changed, and the events among them. A temporary state is written only if the plan has no
    /// writes, because a write could replace it at once.
    /// At most [`MAX_WRITES`] at once. Returns whether more remain.
    async fn write_states(&self, plan: &Plan, memory: &mut Memory) -> bool {
        let mut changed = plan.states.clone();
        let is_temporary = |state: &State| matches!(state.reason, Reason::Pending | Reason::TenantNotReady);
        let is_final = |state: &State| plan.writes.is_empty() || !is_temporary(state);
        changed.retain(|(subject, state)| is_final(state) && memory.is_new(subject, state));
        let mut has_more = changed.len() > MAX_WRITES;
        changed.truncate(MAX_WRITES);
        let mut written = stream::iter(changed)
            .map(|(subject, state)| async move { (self.write_state(&subject, &state).await, subject, state) })
            .buffer_unordered(CONCURRENCY);
        while let Some((result, subject, state)) = written.next().await {
            match result {
                Ok(()) => memory.put_state(&subject, state),
                // The resource was deleted meanwhile, or the next plan writes it again.
                Err(error) => {
                    tracing::debug!(error = service::chain(&error), "failed to write a status");
                    has_more = false;
                }
            }
        }
        has_more
    }

    async fn write_state(&self, subject: &Subject, state: &State) -> Result<(), kube::Error> {
        self.term.wait_while_valid().await;
        let is_event = state.is_event(subject.status());
        self.kubernetes.write_status(subject, state).await?;
        if is_event {
            let reason = format!("{:?}", state.reason);
            self.kubernetes.publish(&subject.reference(), &reason, Some(state), &state.message).await;
        }
        Ok(())
    }
}

fn log_secret(error: &kube::Error) {
    tracing::warn!(error = service::chain(error), "failed to write a Secret");
}
