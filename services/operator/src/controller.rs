//! Executes plans. Only the replica that holds the lease runs it.

mod consumers;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::managed::{ManagedProducer, ManagedTenant, OperatorId, Owner, StoredProducer};
use futures::{StreamExt as _, stream};
use kube::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use tenancy::TenantId;
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::WriteError;
use crate::guard::Guard;
use crate::kubernetes::{Caches, Kubernetes};
use crate::lease::Term;
use crate::memory::Memory;
use crate::metrics::OperatorMetrics;
use crate::plan::{Plan, Write};
use crate::resources::SvcTenant;
use crate::services::{CallError, ServiceClient};
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
    pub(crate) identity: ServiceClient,
    pub(crate) session: ServiceClient,
    /// `None` if the operator does not manage consumers.
    pub(crate) ingest: Option<ServiceClient>,
    /// Address of NATS in the Secrets of consumers; empty if it is not known.
    pub(crate) consumer_nats_url: Arc<str>,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) term: Term,
    /// The operators of which this one takes over tenants, producers and consumers.
    pub(crate) take_over_from: Arc<[OperatorId]>,
    /// Releases at the start that the configuration confirms.
    pub(crate) confirmed_releases: usize,
}

/// Where concurrent writes record their results, as the next poll would report them.
type Record<'a> = Mutex<&'a mut Memory>;

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
        let (tenants, producers) = tokio::join!(self.identity.tenants(), self.session.producers());
        keep(&mut memory.stored_tenants, tenants, |stored| stored.tenant_id.clone(), "tenants from identity");
        keep(&mut memory.stored_producers, producers, |stored| stored.uid, "producers from session");
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
        let record = &Mutex::new(memory);
        let writes = stream::iter(plan.writes.iter().take(MAX_WRITES).cloned())
            .map(|write| async move { (self.write(&write, record).await, write) })
            .buffer_unordered(CONCURRENCY);
        let mut writes = std::pin::pin!(writes);
        while let Some((result, write)) = writes.next().await {
            self.metrics.count_write(result.is_err());
            match (result, write.subject()) {
                (Ok(()), Some((uid, _))) => record.lock().forget_failure(uid),
                (Ok(()), None) => {}
                (Err(error), _) => record.lock().fail(&write, &error),
            }
        }
    }

    async fn write(&self, write: &Write, record: &Record<'_>) -> Result<(), WriteError> {
        self.term.wait_while_valid().await;
        match write {
            Write::SetFinalizer { resource, present } => {
                self.kubernetes.set_finalizer(resource, *present).await?;
                record.lock().mark_outdated(resource);
            }
            Write::PutTenant { resource, tenant_id, desired } => {
                self.put_tenant(resource, tenant_id, desired, record).await?;
            }
            Write::RenewInvite { resource, tenant_id, owner, pending_until } => {
                self.renew_invite(resource, (tenant_id, *owner), *pending_until, record).await?;
            }
            Write::DeleteSecret { resource } => {
                self.kubernetes.delete_invite(&resource.name_any()).await?;
                record.lock().put_secret(resource, None);
            }
            Write::Suspend { resource, tenant_id, desired } => {
                let result = match self.identity.put_tenant(tenant_id, desired).await {
                    Ok(_) => self.identity.release_tenant(tenant_id, desired.owner).await,
                    Err(error) => Err(error),
                };
                match result {
                    Ok(()) => {
                        tracing::info!(%tenant_id, uid = %desired.owner.uid, "tenant released: its resource is being deleted");
                        self.metrics.count_release(Kind::Tenant);
                    }
                    // The tenant is not owned by the resource, so there is nothing to suspend.
                    Err(CallError::Conflict(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                self.kubernetes.set_finalizer(resource, false).await?;
                record.lock().mark_outdated(resource);
                record.lock().forget_tenant(tenant_id);
            }
            Write::Release { tenant_id, owner } => {
                self.identity.release_tenant(tenant_id, *owner).await?;
                tracing::info!(%tenant_id, uid = %owner.uid, "tenant released: its resource does not exist");
                self.metrics.count_release(Kind::Tenant);
                record.lock().forget_tenant(tenant_id);
            }
            Write::PutProducer { uid, producer, .. } => {
                let take_over_from = self.take_over_from.to_vec();
                let write = ManagedProducer { producer: producer.clone(), take_over_from };
                self.session.put_producer(*uid, &write).await?;
                record.lock().put_producer(StoredProducer { uid: *uid, producer: write.producer });
            }
            Write::DeleteProducer { uid, tenant_id, is_final } => {
                self.session.delete_producer(*uid, tenant_id, *is_final).await?;
                let reason =
                    if *is_final { "its resource does not exist" } else { "its tenant does not allow it" };
                tracing::info!(%tenant_id, %uid, reason, "producer deleted");
                self.metrics.count_release(Kind::Producer);
                record.lock().forget_producer(*uid);
            }
            Write::PutConsumer { resource, uid, consumer } => {
                self.put_consumer(resource, *uid, consumer, record).await?;
            }
            Write::PutLogin { resource, uid, stored } => {
                self.put_login(resource, *uid, stored, record).await?;
            }
            Write::DeleteConsumer { uid, name, not_allowed } => {
                self.delete_consumer(*uid, name, not_allowed.as_deref(), record).await?;
            }
        }
        Ok(())
    }

    async fn put_tenant(
        &self,
        resource: &SvcTenant,
        tenant_id: &TenantId,
        desired: &ManagedTenant,
        record: &Record<'_>,
    ) -> Result<(), WriteError> {
        let take_over_from = self.take_over_from.to_vec();
        let desired = ManagedTenant { take_over_from, ..desired.clone() };
        let written = self.identity.put_tenant(tenant_id, &desired).await?;
        if let Some(invite) = &written.invite {
            // Without the Secret, the next plan gets another token.
            let result = self.kubernetes.write_invite(resource, invite).await;
            if result.inspect_err(log_secret).is_ok() {
                record.lock().put_secret(resource, Some(invite.expires_at));
            }
        }
        let was_stored = record.lock().put_tenant(tenant_id, desired.owner, written.invite.as_ref());
        if written.changed && was_stored {
            let note =
                "The tenant was changed without its resource. The operator restored the desired state.";
            self.kubernetes.publish(&resource.object_ref(&()), "DriftCorrected", None, note).await;
        }
        Ok(())
    }

    async fn renew_invite(
        &self,
        resource: &SvcTenant,
        (tenant_id, owner): (&TenantId, Owner),
        pending_until: Option<DateTime<Utc>>,
        record: &Record<'_>,
    ) -> Result<(), WriteError> {
        // The cache can be older than the Secret, and a person may have read its token already.
        if pending_until.is_some()
            && self.kubernetes.invite_expiry(&resource.name_any()).await? == pending_until
        {
            record.lock().put_secret(resource, pending_until);
            return Ok(());
        }
        let invite = self.identity.renew_invite(tenant_id, owner).await?;
        self.kubernetes.write_invite(resource, &invite).await.inspect_err(log_secret)?;
        record.lock().put_tenant(tenant_id, owner, Some(&invite));
        record.lock().put_secret(resource, Some(invite.expires_at));
        let note = "The Secret has a new token for the invite of the first administrator.";
        self.kubernetes.publish(&resource.object_ref(&()), "InviteRenewed", None, note).await;
        Ok(())
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

/// Keeps the objects of a list by their keys. If the list could not be read, the last one remains.
fn keep<K: Eq + Hash, V>(
    stored: &mut Option<Arc<HashMap<K, V>>>,
    list: Result<Vec<V>, CallError>,
    key: impl Fn(&V) -> K,
    objects: &str,
) {
    match list {
        Ok(list) => *stored = Some(Arc::new(list.into_iter().map(|each| (key(&each), each)).collect())),
        Err(error) => tracing::warn!(%error, "failed to read the {objects}"),
    }
}

fn log_secret(error: &kube::Error) {
    tracing::warn!(error = service::chain(error), "failed to write a Secret");
}
