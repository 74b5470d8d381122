//! The resources of namespaces: producers and consumers. Their tenant allows their namespace.

use std::collections::HashMap;
use std::sync::Arc;

use contract::consumers::{ConsumerStart, CreateConsumer};
use contract::managed;
use kube::ResourceExt as _;
use tenancy::TenantId;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Observed, Plan, Write, generation, uid};
use crate::login_secret::{self, LoginSecret};
use crate::resources::{SvcConsumer, SvcProducer, SvcTenant};
use crate::status::{Progress, Reason, State, Subject};

/// Why a resource is not written, and whether a stored one loses its access.
struct Denied {
    state: State,
    is_final: bool,
}

impl Denied {
    fn finally(reason: Reason, message: String) -> Self {
        Self { state: State::new(Progress::Stalled, reason, message), is_final: true }
    }

    fn for_now(reason: Reason, message: String) -> Self {
        Self { state: State::new(Progress::Reconciling, reason, message), is_final: false }
    }
}

impl Observed {
    pub(super) fn plan_producer(
        &self,
        resource: &Arc<SvcProducer>,
        tenants: &HashMap<String, &SvcTenant>,
        now: Instant,
        plan: &mut Plan,
    ) {
        let (Some(uid), generation) = (uid(&**resource), generation(&**resource)) else { return };
        if resource.metadata.deletion_timestamp.is_some() {
            return;
        }
        let (subject, namespace) =
            (Subject::Producer(Arc::clone(resource)), resource.namespace().unwrap_or_default());
        let Some(stored) = &self.stored_producers else {
            let message = "The operator has not read the producers from session yet.";
            let state = State::new(Progress::Reconciling, Reason::SessionUnavailable, message);
            return plan.states.push((subject, state));
        };
        let stored = stored.get(&uid).map(|stored| &stored.producer);
        let tenant_id = match self.allowed_tenant(&resource.spec.tenant, &namespace, tenants) {
            Ok(tenant_id) => tenant_id,
            Err(denied) => {
                let tenant_id = stored.map(|stored| stored.tenant_id.clone());
                let delete =
                    tenant_id.map(|tenant_id| Write::DeleteProducer { uid, tenant_id, is_final: false });
                return self.deny((subject, uid), denied, delete, now, plan);
            }
        };
        let desired = managed::Producer {
            tenant_id,
            service_account: managed::ServiceAccount {
                namespace,
                name: resource.spec.service_account.clone(),
            },
            source_ids: resource.spec.source_ids.clone(),
            generation,
        };
        let write = (stored != Some(&desired)).then(|| Write::PutProducer {
            resource: Arc::clone(resource),
            uid,
            producer: desired,
        });
        let ready = "The service account can send events of these sources.".to_owned();
        self.settle((subject, uid, generation), write, ready, now, plan);
    }

    pub(super) fn plan_consumer(
        &self,
        resource: &Arc<SvcConsumer>,
        tenants: &HashMap<String, &SvcTenant>,
        now: Instant,
        plan: &mut Plan,
    ) {
        let (Some(uid), generation) = (uid(&**resource), generation(&**resource)) else { return };
        // The API server admits only valid names.
        let Ok(name) = resource.name_any().parse() else { return };
        if resource.metadata.deletion_timestamp.is_some() {
            return;
        }
        let stored = self.stored_consumers.as_ref().map(|stored| stored.get(&uid));
        let lag = stored.flatten().map(|stored| stored.lag);
        let (subject, namespace) =
            (Subject::Consumer(Arc::clone(resource), lag), resource.namespace().unwrap_or_default());
        let Some(stored) = stored else {
            let message = "The operator has not read the consumers from ingest yet.";
            let state = State::new(Progress::Reconciling, Reason::IngestUnavailable, message);
            return plan.states.push((subject, state));
        };
        let tenant_id = match self.allowed_tenant(&resource.spec.tenant, &namespace, tenants) {
            Ok(tenant_id) => tenant_id,
            Err(denied) => {
                let has_login = stored.is_some_and(|stored| stored.login_digest.is_some());
                let not_allowed = Some(Arc::clone(resource));
                let delete = has_login.then_some(Write::DeleteConsumer { uid, name, not_allowed });
                return self.deny((subject, uid), denied, delete, now, plan);
            }
        };
        let start: ConsumerStart = match resource.spec.start.parse() {
            Ok(start) => start,
            Err(error) => {
                let state = State::new(Progress::Stalled, Reason::Invalid, format!("start: {error}"));
                return plan.states.push((subject, state));
            }
        };
        let desired = CreateConsumer {
            name,
            tenant_id: Some(tenant_id),
            all_tenants: false,
            event_types: resource.spec.event_types.clone(),
            partitions: resource.spec.partitions,
            start: Some(start),
            ack_wait_seconds: resource.spec.ack_wait_seconds,
            max_ack_pending: resource.spec.max_ack_pending,
        };
        let resource = Arc::clone(resource);
        let is_stored = |stored: &&managed::StoredConsumer| {
            stored.owner.generation == generation && stored.consumer == desired
        };
        let write = match stored.filter(is_stored) {
            None => Some(Write::PutConsumer { resource, uid, consumer: desired }),
            Some(stored) => {
                let found = self.logins.get(&login_secret::key(&namespace, stored.consumer.name.as_str()));
                let is_written = found.is_some_and(|found| self.is_login(found, stored));
                (!is_written).then(|| Write::PutLogin { resource, uid, stored: Box::new(stored.clone()) })
            }
        };
        let ready = format!(
            "The Secret {} has the login.",
            login_secret::name(&subject.metadata().name.clone().unwrap_or_default())
        );
        self.settle((subject, uid, generation), write, ready, now, plan);
    }

    /// Returns whether a Secret has the stored login and its present address.
    fn is_login(&self, found: &LoginSecret, stored: &managed::StoredConsumer) -> bool {
        let password = found.password_of(stored);
        password.is_some_and(|password| *found == LoginSecret::new(stored, password, &self.nats_url))
    }

    /// Plans the removal of a resource that is not allowed.
    fn deny(
        &self,
        (subject, uid): (Subject, Uuid),
        denied: Denied,
        delete: Option<Write>,
        now: Instant,
        plan: &mut Plan,
    ) {
        plan.writes.extend(delete.filter(|_| denied.is_final && self.may_delete(uid, now)));
        plan.states.push((subject, denied.state));
    }

    /// Plans the write of a resource that is allowed. Without one, it is ready.
    fn settle(
        &self,
        (subject, uid, generation): (Subject, Uuid, i64),
        write: Option<Write>,
        ready: String,
        now: Instant,
        plan: &mut Plan,
    ) {
        let failure = self.failure(uid, generation);
        let state = match (&write, failure) {
            (None, _) => State::new(Progress::Ready, Reason::Provisioned, ready),
            (Some(_), Some(failure)) => failure.state.clone(),
            (Some(_), None) => {
                State::new(Progress::Reconciling, Reason::Pending, "The resource is being written.")
            }
        };
        plan.writes.extend(write.filter(|_| failure.is_none_or(|failure| failure.retry_at <= now)));
        plan.states.push((subject, state));
    }

    /// Returns the tenant of a resource, if the tenant allows its namespace.
    fn allowed_tenant(
        &self,
        name: &str,
        namespace: &str,
        tenants: &HashMap<String, &SvcTenant>,
    ) -> Result<TenantId, Denied> {
        let Some(tenant) = tenants.get(name) else {
            return Err(Denied::finally(Reason::TenantNotFound, format!("There is no SvcTenant {name}.")));
        };
        let selector = tenant.spec.allowed_namespaces.as_ref();
        let labels = self.namespaces.get(namespace);
        if !selector.zip(labels).is_some_and(|(selector, labels)| selector.matches(labels)) {
            let message = format!(
                "allowedNamespaces of the SvcTenant {name} does not select the namespace {namespace}."
            );
            return Err(Denied::finally(Reason::NamespaceNotAllowed, message));
        }
        let Some(stored_tenants) = &self.stored_tenants else {
            let message = "The operator has not read the tenants from identity yet.".to_owned();
            return Err(Denied::for_now(Reason::IdentityUnavailable, message));
        };
        let stored = name.parse().ok().and_then(|tenant_id: TenantId| stored_tenants.get(&tenant_id));
        match stored {
            Some(stored) if uid(*tenant) == Some(stored.owner.uid) => Ok(stored.tenant_id.clone()),
            stored => {
                let denied =
                    Denied::for_now(Reason::TenantNotReady, format!("The SvcTenant {name} is not ready."));
                // A tenant that another operator has taken over keeps its producers and consumers.
                Err(Denied { is_final: stored.is_some(), ..denied })
            }
        }
    }
}
