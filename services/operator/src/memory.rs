//! State of the controller between two plans. It is not stored: a new leader reads it again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::identity::InviteStatus;
use contract::managed::{IssuedInvite, Owner, StoredConsumer, StoredInvite, StoredProducer, StoredTenant};
use kube::ResourceExt as _;
use tenancy::TenantId;
use tokio::time::Instant;
use uuid::Uuid;

use crate::failure::{self, WriteError};
use crate::guard::Guard;
use crate::kubernetes::Caches;
use crate::login_secret::{self, LoginSecret};
use crate::plan::{self, Failure, Observed, Plan, Write};
use crate::resources::{SvcConsumer, SvcTenant};
use crate::status::{Progress, State, Subject};

/// Maximum delay of a watch after a write. After it, the cache is used as it is.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_mins(5);

/// Values that were written, or deleted (`None`), with their time.
type Overlay<T> = HashMap<String, (Option<T>, Instant)>;

/// The stored state, the writes that failed, and the writes that the watches report later, with their time.
#[derive(Default)]
pub(crate) struct Memory {
    /// Shared with the plan, because a copy of thousands of objects for each plan would double the memory of the operator.
    pub(crate) stored_tenants: Option<Arc<HashMap<TenantId, StoredTenant>>>,
    pub(crate) stored_producers: Option<Arc<HashMap<Uuid, StoredProducer>>>,
    pub(crate) stored_consumers: Option<Arc<HashMap<Uuid, StoredConsumer>>>,
    /// Address of NATS for consumers.
    pub(crate) nats_url: Arc<str>,
    pub(crate) guard: Guard,
    failures: HashMap<Uuid, Failure>,
    /// The versions of the resources before their finalizers were changed.
    outdated: HashMap<Uuid, (Option<String>, Instant)>,
    /// The expiry times of the invites in Secrets that were written or deleted (`None`).
    secrets: Overlay<DateTime<Utc>>,
    /// The logins of consumers in Secrets that were written or deleted.
    logins: Overlay<LoginSecret>,
    /// The states that were written, with the generation of the resource.
    states: HashMap<Uuid, (Option<i64>, State, Instant)>,
}

impl Memory {
    /// Plans the writes, without the removals that are held.
    pub(crate) fn plan(&mut self, caches: &Caches) -> Plan {
        let observed = self.observe(caches);
        let mut plan = observed.plan(Instant::now());
        self.guard.hold(&mut plan, &observed);
        plan
    }

    /// The cached resources with the writes that the watches have not reported yet.
    fn observe(&mut self, caches: &Caches) -> Observed {
        self.forget(Instant::now());
        Observed {
            tenants: caches.tenants(),
            producers: caches.producers(),
            consumers: caches.consumers(),
            namespaces: caches.namespaces(),
            secrets: lay_over(&mut self.secrets, caches.secrets()),
            logins: lay_over(&mut self.logins, caches.logins()),
            nats_url: Arc::clone(&self.nats_url),
            stored_tenants: self.stored_tenants.clone(),
            stored_producers: self.stored_producers.clone(),
            stored_consumers: self.stored_consumers.clone(),
            failures: self.failures.clone(),
            outdated: self.outdated.iter().map(|(uid, (version, _))| (*uid, version.clone())).collect(),
        }
    }

    /// Forgets what the watches have reported, and failed writes that no plan repeats any more.
    fn forget(&mut self, now: Instant) {
        let is_recent = |at: Instant| now < at + MAX_WATCH_DELAY;
        self.failures.retain(|_, failure| is_recent(failure.retry_at));
        self.outdated.retain(|_, (_, at)| is_recent(*at));
        self.secrets.retain(|_, (_, at)| is_recent(*at));
        self.logins.retain(|_, (_, at)| is_recent(*at));
        self.states.retain(|_, (_, _, at)| is_recent(*at));
    }

    /// Records the Secret of an invite: its expiry time, or `None` if it was deleted.
    pub(crate) fn put_secret(&mut self, resource: &SvcTenant, term: Option<DateTime<Utc>>) {
        self.secrets.insert(resource.name_any(), (term, Instant::now()));
    }

    /// Records the Secret with the login of a consumer: `None` if it was deleted.
    pub(crate) fn put_login(&mut self, resource: &SvcConsumer, login: Option<LoginSecret>) {
        let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
        self.logins.insert(login_secret::key(&namespace, &name), (login, Instant::now()));
    }

    pub(crate) fn put_consumer(&mut self, stored: StoredConsumer) {
        stored_mut(&mut self.stored_consumers).insert(stored.owner.uid, stored);
    }

    /// A consumer was deleted, or only its login.
    pub(crate) fn forget_consumer(&mut self, uid: Uuid, is_final: bool) {
        if is_final {
            stored_mut(&mut self.stored_consumers).remove(&uid);
            self.forget_conflicts();
        } else if let Some(stored) = stored_mut(&mut self.stored_consumers).get_mut(&uid) {
            stored.login_digest = None;
        }
    }

    pub(crate) fn put_producer(&mut self, stored: StoredProducer) {
        stored_mut(&mut self.stored_producers).insert(stored.uid, stored);
    }

    pub(crate) fn forget_producer(&mut self, uid: Uuid) {
        stored_mut(&mut self.stored_producers).remove(&uid);
        self.forget_conflicts();
    }

    pub(crate) fn forget_failure(&mut self, uid: Uuid) {
        self.failures.remove(&uid);
    }

    /// Returns whether the tenant was stored for this generation of the resource.
    pub(crate) fn put_tenant(
        &mut self,
        tenant_id: &TenantId,
        owner: Owner,
        invite: Option<&IssuedInvite>,
    ) -> bool {
        let stored_tenants = stored_mut(&mut self.stored_tenants);
        let before = stored_tenants.remove(tenant_id);
        let was_stored = before.as_ref().is_some_and(|stored| stored.owner == owner);
        let issued = invite
            .map(|invite| StoredInvite { status: InviteStatus::Pending, expires_at: invite.expires_at });
        let invite = issued.or(before.and_then(|stored| stored.invite));
        let stored = StoredTenant { tenant_id: tenant_id.clone(), owner, is_drifted: false, invite };
        stored_tenants.insert(tenant_id.clone(), stored);
        was_stored
    }

    pub(crate) fn forget_tenant(&mut self, tenant_id: &TenantId) {
        stored_mut(&mut self.stored_tenants).remove(tenant_id);
        self.forget_conflicts();
    }

    /// The cached resource does not show a change of its finalizers yet.
    pub(crate) fn mark_outdated(&mut self, resource: &SvcTenant) {
        if let Some(uid) = plan::uid(resource) {
            self.outdated.insert(uid, (resource.resource_version(), Instant::now()));
        }
    }

    /// A deletion can resolve a conflict, so conflicts are tried again.
    fn forget_conflicts(&mut self) {
        self.failures.retain(|_, failure| failure.state.progress != Progress::Stalled);
    }

    pub(crate) fn fail(&mut self, write: &Write, error: &WriteError) {
        let Some((uid, generation)) = write.subject() else { return };
        let before = self.failures.get(&uid).filter(|failure| failure.generation == generation);
        let attempts = before.map_or(0, |failure| failure.attempts) + 1;
        let delay = FIRST_RETRY.saturating_mul(1 << attempts.min(16)).min(MAX_RETRY) / 2;
        let state = failure::state_of(write, error);
        if before.is_none_or(|failure| failure.state != state) {
            tracing::warn!(%uid, reason = ?state.reason, message = &*state.message, "failed to write resource; retrying");
        }
        self.failures.insert(uid, Failure { generation, state, attempts, retry_at: Instant::now() + delay });
    }

    /// Returns whether a state differs from the one that was just written, or else from the status of the resource.
    pub(crate) fn is_new(&self, subject: &Subject, state: &State) -> bool {
        let generation = subject.metadata().generation;
        match subject.uid().and_then(|uid| self.states.get(&uid)) {
            Some((of, last, _)) => (*of, last) != (generation, state),
            None => {
                subject.status() != Some(&state.status(generation, subject.status())) || subject.has_new_lag()
            }
        }
    }

    pub(crate) fn put_state(&mut self, subject: &Subject, state: State) {
        if let Some(uid) = subject.uid() {
            self.states.insert(uid, (subject.metadata().generation, state, Instant::now()));
        }
    }
}

/// The stored objects, to change them. A plan that shares them keeps a copy.
fn stored_mut<K: Clone, V: Clone>(stored: &mut Option<Arc<HashMap<K, V>>>) -> &mut HashMap<K, V> {
    Arc::make_mut(stored.get_or_insert_default())
}

/// Returns the cached values with those that the watch has not reported yet.
fn lay_over<T: Clone + PartialEq>(
    written: &mut Overlay<T>,
    mut cached: HashMap<String, T>,
) -> HashMap<String, T> {
    written.retain(|key, (value, _)| cached.get(key) != value.as_ref());
    for (key, (value, _)) in written.iter() {
        match value {
            Some(value) => cached.insert(key.clone(), value.clone()),
            None => cached.remove(key),
        };
    }
    cached
}

#[cfg(test)]
mod tests;
