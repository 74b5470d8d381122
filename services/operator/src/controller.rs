//! Executes plans. Only the replica that holds the lease runs it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::identity::InviteStatus;
use contract::managed::{Conflict, IssuedInvite, Owner, StoredInvite, StoredProducer, StoredTenant};
use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use tenancy::TenantId;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use crate::kubernetes::{Caches, Kubernetes};
use crate::metrics::OperatorMetrics;
use crate::plan::{self, Failure, Observed, Plan, Write};
use crate::resources::{Producer, ResourceStatus, Tenant};
use crate::services::{CallError, Identity, Session};
use crate::status::{Progress, Reason, State};

/// Interval at which the stored state is read, to find changes by others.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Delay after a change, so that many changes are one plan.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// How long a watch can take to report a write. Later, the cache is right.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 8;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_mins(5);

/// The dependencies of the controller.
#[derive(Clone)]
pub(crate) struct Controller {
    pub(crate) caches: Caches,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) identity: Identity,
    pub(crate) session: Session,
    pub(crate) metrics: OperatorMetrics,
}

/// What the controller remembers between two plans. All of it can be lost.
#[derive(Default)]
struct Memory {
    stored_tenants: Option<HashMap<TenantId, StoredTenant>>,
    stored_producers: Option<HashMap<Uuid, StoredProducer>>,
    outdated: HashMap<Uuid, Option<String>>,
    failures: HashMap<Uuid, Failure>,
    /// The terms of the invites in Secrets that were just written or deleted (`None`), and when. The watch reports them later.
    secrets: HashMap<String, (Option<DateTime<Utc>>, Instant)>,
    /// The states that were written last.
    states: HashMap<Uuid, (i64, State)>,
}

/// Why a write failed.
enum WriteError {
    Call(CallError),
    Kubernetes(kube::Error),
}

impl From<CallError> for WriteError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        Self::Kubernetes(error)
    }
}

/// The result of a write.
enum Written {
    Nothing,
    Tenant { changed: bool, invite: Option<IssuedInvite>, in_secret: bool },
    Invite(IssuedInvite),
}

impl Controller {
    /// Plans and writes until it is cancelled.
    pub(crate) async fn run(&self) {
        self.caches.ready().await;
        let mut memory = Memory::default();
        let mut next_poll = Instant::now();
        loop {
            if next_poll <= Instant::now() {
                self.poll(&mut memory).await;
                next_poll = Instant::now() + POLL_INTERVAL;
            }
            self.converge(&mut memory).await;
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
                memory.stored_tenants = Some(tenants.collect());
            }
            Err(error) => tracing::warn!(%error, "failed to read the tenants from identity"),
        }
        match producers {
            Ok(producers) => {
                memory.stored_producers =
                    Some(producers.into_iter().map(|stored| (stored.uid, stored)).collect());
            }
            Err(error) => tracing::warn!(%error, "failed to read the producers from session"),
        }
    }

    /// Writes until the plan has no writes left. A failed write is planned again after a delay.
    async fn converge(&self, memory: &mut Memory) {
        loop {
            let plan = self.observe(memory).plan(Instant::now());
            self.metrics.set_resources(&plan);
            let is_done = plan.writes.is_empty();
            self.write_all(&plan, memory).await;
            self.write_states(&plan, memory).await;
            if is_done {
                return;
            }
        }
    }

    fn observe(&self, memory: &mut Memory) -> Observed {
        let mut secrets = self.caches.secrets();
        memory.secrets.retain(|tenant, (term, at)| {
            secrets.get(tenant).copied() != *term && at.elapsed() < MAX_WATCH_DELAY
        });
        for (tenant, (term, _)) in &memory.secrets {
            match term {
                Some(term) => secrets.insert(tenant.clone(), *term),
                None => secrets.remove(tenant),
            };
        }
        Observed {
            tenants: self.caches.tenants(),
            producers: self.caches.producers(),
            namespaces: self.caches.namespaces(),
            secrets,
            stored_tenants: memory.stored_tenants.clone(),
            stored_producers: memory.stored_producers.clone(),
            failures: memory.failures.clone(),
            outdated: memory.outdated.clone(),
        }
    }

    async fn write_all(&self, plan: &Plan, memory: &mut Memory) {
        let writes = stream::iter(plan.writes.clone())
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
        match write {
            Write::SetFinalizer { resource, present } => {
                self.kubernetes.set_finalizer(resource, *present).await?;
            }
            Write::PutTenant { resource, tenant_id, desired } => {
                let written = self.identity.put(tenant_id, desired).await?;
                let mut in_secret = false;
                if let Some(invite) = &written.invite {
                    // Without the Secret, the next plan gets another token.
                    let result = self.kubernetes.write_invite(resource, invite).await;
                    in_secret = result.inspect_err(log_secret).is_ok();
                }
                return Ok(Written::Tenant { changed: written.changed, invite: written.invite, in_secret });
            }
            Write::RenewInvite { resource, tenant_id, owner } => {
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
                    // The tenant is not owned by the resource, so there is nothing to suspend.
                    Ok(()) | Err(CallError::Conflict(_)) => {
                        self.kubernetes.set_finalizer(resource, false).await?;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Write::Release { tenant_id, owner } => self.identity.release(tenant_id, *owner).await?,
            Write::PutProducer { uid, producer, .. } => self.session.put(*uid, producer).await?,
            Write::DeleteProducer { uid, tenant_id, is_final } => {
                self.session.delete(*uid, tenant_id, *is_final).await?;
            }
        }
        Ok(Written::Nothing)
    }

    /// Records the result of a write, as the next poll would report it.
    async fn remember(&self, write: &Write, written: Written, memory: &mut Memory) {
        if let Some((uid, _)) = write.subject() {
            memory.failures.remove(&uid);
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
                    memory.secrets.insert(resource.name_any(), (Some(invite.expires_at), Instant::now()));
                }
                if changed && was_stored {
                    let note = "Someone else changed the tenant. The desired state was restored.";
                    self.kubernetes.publish(&**resource, "DriftCorrected", None, note).await;
                }
            }
            (Write::RenewInvite { resource, tenant_id, owner }, Written::Invite(invite)) => {
                memory.put_tenant(tenant_id, *owner, Some(&invite));
                memory.secrets.insert(resource.name_any(), (Some(invite.expires_at), Instant::now()));
                let note = "The Secret has a new token for the invite of the first administrator.";
                self.kubernetes.publish(&**resource, "InviteRenewed", None, note).await;
            }
            (Write::DeleteSecret { resource }, _) => {
                memory.secrets.insert(resource.name_any(), (None, Instant::now()));
            }
            (Write::SetFinalizer { resource, .. }, _) => memory.mark_outdated(resource),
            (Write::Suspend { tenant_id, resource, .. }, _) => {
                memory.mark_outdated(resource);
                memory.forget_tenant(tenant_id);
            }
            (Write::Release { tenant_id, .. }, _) => memory.forget_tenant(tenant_id),
            (Write::PutProducer { uid, producer, .. }, _) => {
                let stored = StoredProducer { uid: *uid, producer: producer.clone() };
                memory.stored_producers.get_or_insert_default().insert(*uid, stored);
            }
            (Write::DeleteProducer { uid, .. }, _) => {
                memory.stored_producers.get_or_insert_default().remove(uid);
                memory.forget_conflicts();
            }
            _ => {}
        }
    }

    /// Writes the states that have changed, with an event if the reason is another one.
    async fn write_states(&self, plan: &Plan, memory: &mut Memory) {
        let mut changed: Vec<(Subject, State)> = Vec::new();
        for (resource, state) in &plan.tenants {
            changed.push((Subject::Tenant(Arc::clone(resource)), state.clone()));
        }
        for (resource, state) in &plan.producers {
            changed.push((Subject::Producer(Arc::clone(resource)), state.clone()));
        }
        changed.retain(|(subject, state)| memory.is_new(subject, state));
        let mut written = stream::iter(changed)
            .map(|(subject, state)| async move { (self.write_state(&subject, &state).await, subject, state) })
            .buffer_unordered(CONCURRENCY);
        while let Some((result, subject, state)) = written.next().await {
            match result {
                Ok(()) => memory.written(&subject, state),
                // The resource was deleted meanwhile, or the next plan writes it again.
                Err(error) => tracing::debug!(error = service::chain(&error), "failed to write a status"),
            }
        }
    }

    async fn write_state(&self, subject: &Subject, state: &State) -> Result<(), kube::Error> {
        let before = subject.status();
        let status = state.status(subject.metadata().generation, before);
        let reason = has_new_reason(state, before).then(|| format!("{:?}", state.reason));
        match subject {
            Subject::Tenant(tenant) => {
                self.kubernetes.write_tenant_status(tenant, &status).await?;
                if let Some(reason) = reason {
                    self.kubernetes.publish(&**tenant, &reason, Some(state), &state.message).await;
                }
            }
            Subject::Producer(producer) => {
                self.kubernetes.write_producer_status(producer, &status).await?;
                if let Some(reason) = reason {
                    self.kubernetes.publish(&**producer, &reason, Some(state), &state.message).await;
                }
            }
        }
        Ok(())
    }
}

/// A resource with a status.
enum Subject {
    Tenant(Arc<Tenant>),
    Producer(Arc<Producer>),
}

impl Subject {
    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Tenant(tenant) => &tenant.metadata,
            Self::Producer(producer) => &producer.metadata,
        }
    }

    fn status(&self) -> Option<&ResourceStatus> {
        match self {
            Self::Tenant(tenant) => tenant.status.as_ref(),
            Self::Producer(producer) => producer.status.as_ref(),
        }
    }

    fn uid(&self) -> Option<Uuid> {
        self.metadata().uid.as_ref()?.parse().ok()
    }
}

fn log_secret(error: &kube::Error) {
    tracing::warn!(error = service::chain(error), "failed to write the Secret of an invite");
}

/// Returns whether the reason of the condition `Ready` differs. A state that lasts for one request causes no event.
fn has_new_reason(state: &State, before: Option<&ResourceStatus>) -> bool {
    let ready =
        before.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Ready"));
    state.reason != Reason::Pending && ready.is_none_or(|ready| ready.reason != format!("{:?}", state.reason))
}

impl Memory {
    fn put_tenant(&mut self, tenant_id: &TenantId, owner: Owner, invite: Option<&IssuedInvite>) {
        let stored_tenants = self.stored_tenants.get_or_insert_default();
        let before = stored_tenants.get(tenant_id).and_then(|stored| stored.invite.clone());
        let issued = invite
            .map(|invite| StoredInvite { status: InviteStatus::Pending, expires_at: invite.expires_at });
        let stored = StoredTenant {
            tenant_id: tenant_id.clone(),
            owner,
            is_drifted: false,
            invite: issued.or(before),
        };
        stored_tenants.insert(tenant_id.clone(), stored);
    }

    fn forget_tenant(&mut self, tenant_id: &TenantId) {
        self.stored_tenants.get_or_insert_default().remove(tenant_id);
        self.forget_conflicts();
    }

    /// The cached resource does not show a change of its finalizers yet.
    fn mark_outdated(&mut self, resource: &Tenant) {
        if let Some(uid) = plan::uid(resource) {
            self.outdated.insert(uid, resource.resource_version());
        }
    }

    /// A conflict can be over after a deletion.
    fn forget_conflicts(&mut self) {
        self.failures.retain(|_, failure| failure.state.progress != Progress::Stalled);
    }

    fn fail(&mut self, write: &Write, error: &WriteError) {
        let Some((uid, generation)) = write.subject() else { return };
        let before = self.failures.get(&uid).filter(|failure| failure.generation == generation);
        let attempts = before.map_or(0, |failure| failure.attempts) + 1;
        let delay = FIRST_RETRY.saturating_mul(1 << attempts.min(16)).min(MAX_RETRY) / 2;
        let state = state_of(write, error);
        if before.is_none_or(|failure| failure.state != state) {
            tracing::warn!(%uid, reason = ?state.reason, message = state.message, "a write failed");
        }
        self.failures.insert(uid, Failure { generation, state, attempts, retry_at: Instant::now() + delay });
    }

    /// Returns whether a state differs from the last written one, or else from the status of the resource.
    fn is_new(&self, subject: &Subject, state: &State) -> bool {
        let generation = subject.metadata().generation;
        match subject.uid().and_then(|uid| self.states.get(&uid)) {
            Some((of, last)) => (*of, last) != (generation.unwrap_or_default(), state),
            None => subject.status() != Some(&state.status(generation, subject.status())),
        }
    }

    fn written(&mut self, subject: &Subject, state: State) {
        if let Some(uid) = subject.uid() {
            self.states.insert(uid, (subject.metadata().generation.unwrap_or_default(), state));
        }
    }
}

/// The state of a resource after a failed write.
fn state_of(write: &Write, error: &WriteError) -> State {
    let stalled = |reason, message: String| State::new(Progress::Stalled, reason, message);
    match error {
        WriteError::Kubernetes(error) => State::new(
            Progress::Reconciling,
            Reason::Pending,
            format!("The API server: {}", service::chain(error)),
        ),
        WriteError::Call(CallError::Unavailable(message)) => {
            let (name, reason) = match write {
                Write::PutProducer { .. } | Write::DeleteProducer { .. } => {
                    ("session", Reason::SessionUnavailable)
                }
                _ => ("identity", Reason::IdentityUnavailable),
            };
            State::new(
                Progress::Reconciling,
                reason,
                format!("The service {name} is not available: {message}"),
            )
        }
        WriteError::Call(CallError::Rejected(message)) => stalled(Reason::Invalid, message.clone()),
        WriteError::Call(CallError::Conflict(conflict)) => match conflict {
            Conflict::Stale | Conflict::InviteSettled => {
                State::new(Progress::Reconciling, Reason::Pending, sentence(*conflict, ""))
            }
            Conflict::TenantNotFound => {
                let advice = " session has not received it yet.";
                State::new(Progress::Reconciling, Reason::TenantNotReady, sentence(*conflict, advice))
            }
            Conflict::TenantExists => {
                let advice = " To take it over, set `adoption: IfUnowned`.";
                stalled(Reason::TenantExists, sentence(*conflict, advice))
            }
            Conflict::ManagedElsewhere => stalled(Reason::ManagedElsewhere, sentence(*conflict, "")),
            Conflict::TenantDeleted => {
                stalled(Reason::TenantDeleted, sentence(*conflict, " Use another name."))
            }
            Conflict::ServiceAccountTaken => {
                let advice = " Delete it, or use another service account.";
                stalled(Reason::ServiceAccountTaken, sentence(*conflict, advice))
            }
        },
    }
}

/// The text of a conflict as a sentence.
fn sentence(conflict: Conflict, advice: &str) -> String {
    let text = conflict.to_string();
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.{advice}", characters.as_str())
}
