//! Decides what to write. A pure function of the observed state, so that it converges after a crash at any point: nothing that it needs
//! is only in memory.

mod members;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use contract::TenantStatus;
use contract::consumers::{ConsumerName, CreateConsumer};
use contract::identity::{Delivery, InviteStatus, Quota, SecondFactorPolicy};
use contract::managed::{
    self, FirstAdmin, ManagedTenant, Owner, StoredConsumer, StoredProducer, StoredTenant,
};
use kube::ResourceExt as _;
use tenancy::TenantId;
use tokio::time::Instant;
use uuid::Uuid;

use crate::login_secret::LoginSecret;
use crate::resources::{
    Adoption, DeletionPolicy, FINALIZER, InviteDelivery, RequiredFactor, SvcConsumer, SvcProducer, SvcTenant,
    TenantState,
};
use crate::status::{Kind, Progress, Reason, State, Subject};

/// What the operator observed. All lists of resources are complete.
#[derive(Default)]
pub(crate) struct Observed {
    pub(crate) tenants: Vec<Arc<SvcTenant>>,
    pub(crate) producers: Vec<Arc<SvcProducer>>,
    pub(crate) consumers: Vec<Arc<SvcConsumer>>,
    /// The labels of each namespace.
    pub(crate) namespaces: HashMap<String, BTreeMap<String, String>>,
    /// The expiry times of the invites in Secrets, by tenant.
    pub(crate) secrets: HashMap<String, DateTime<Utc>>,
    /// The logins of consumers in Secrets, by the key of the consumer.
    pub(crate) logins: HashMap<String, LoginSecret>,
    /// Address of NATS for consumers; empty if it is not known.
    pub(crate) nats_url: Arc<str>,
    /// What identity stores; `None` until it was read once. Until then, nothing is written.
    pub(crate) stored_tenants: Option<Arc<HashMap<TenantId, StoredTenant>>>,
    /// What session stores; `None` until it was read once. Until then, no producer is written.
    pub(crate) stored_producers: Option<Arc<HashMap<Uuid, StoredProducer>>>,
    /// What ingest stores; `None` until it was read once. Until then, no consumer is written.
    pub(crate) stored_consumers: Option<Arc<HashMap<Uuid, StoredConsumer>>>,
    /// The writes that failed, by the uid of the resource.
    pub(crate) failures: HashMap<Uuid, Failure>,
    /// The versions of resources with finalizers that were just changed. The watch reports the change later.
    pub(crate) outdated: HashMap<Uuid, Option<String>>,
}

/// A write that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The generation of the resource; [`DELETION`] for a deletion.
    pub(crate) generation: i64,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    pub(crate) retry_at: Instant,
}

/// The generation of a [`Failure`] to delete or to release.
pub(crate) const DELETION: i64 = -1;

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    /// Adds or removes the finalizer.
    SetFinalizer { resource: Arc<SvcTenant>, present: bool },
    /// Creates or changes a tenant.
    PutTenant { resource: Arc<SvcTenant>, tenant_id: TenantId, desired: ManagedTenant },
    /// Gets a new token for the invite of the first administrator, and writes it to a Secret. `pending_until` is the expiry time of an
    /// invite that can still be accepted: a Secret with it is kept.
    RenewInvite {
        resource: Arc<SvcTenant>,
        tenant_id: TenantId,
        owner: Owner,
        pending_until: Option<DateTime<Utc>>,
    },
    /// Deletes the Secret of an invite that cannot be accepted any more.
    DeleteSecret { resource: Arc<SvcTenant> },
    /// Suspends a tenant when its resource is being deleted, releases it, and removes the finalizer.
    Suspend { resource: Arc<SvcTenant>, tenant_id: TenantId, desired: ManagedTenant },
    /// Ends the ownership of a resource that does not exist any more.
    Release { tenant_id: TenantId, owner: Owner },
    /// Stores a producer.
    PutProducer { resource: Arc<SvcProducer>, uid: Uuid, producer: managed::Producer },
    /// Deletes a producer that does not exist any more, or is not allowed.
    DeleteProducer { uid: Uuid, tenant_id: TenantId, is_final: bool },
    /// Stores a consumer.
    PutConsumer { resource: Arc<SvcConsumer>, uid: Uuid, consumer: CreateConsumer },
    /// Writes the Secret with the login of a consumer. The login is replaced if the Secret does not contain the stored one.
    PutLogin { resource: Arc<SvcConsumer>, uid: Uuid, stored: Box<StoredConsumer> },
    /// Deletes a consumer without a resource, or the login and the Secret of one that is not allowed.
    DeleteConsumer { uid: Uuid, name: ConsumerName, not_allowed: Option<Arc<SvcConsumer>> },
}

impl Write {
    /// What it removes, and the uid of its resource.
    pub(crate) fn removal(&self) -> Option<(Kind, Uuid)> {
        match self {
            Self::Release { owner, .. } => Some((Kind::Tenant, owner.uid)),
            Self::DeleteProducer { uid, .. } => Some((Kind::Producer, *uid)),
            Self::DeleteConsumer { uid, .. } => Some((Kind::Consumer, *uid)),
            _ => None,
        }
    }

    /// The uid of the resource, and its generation.
    pub(crate) fn subject(&self) -> Option<(Uuid, i64)> {
        match self {
            Self::SetFinalizer { resource, .. }
            | Self::PutTenant { resource, .. }
            | Self::RenewInvite { resource, .. }
            | Self::DeleteSecret { resource }
            | Self::Suspend { resource, .. } => Some((uid(&**resource)?, generation(&**resource))),
            Self::PutProducer { resource, uid, .. } => Some((*uid, generation(&**resource))),
            Self::PutConsumer { resource, uid, .. } | Self::PutLogin { resource, uid, .. } => {
                Some((*uid, generation(&**resource)))
            }
            Self::DeleteProducer { uid, .. } | Self::DeleteConsumer { uid, .. } => Some((*uid, DELETION)),
            Self::Release { owner, .. } => Some((owner.uid, DELETION)),
        }
    }
}

/// The writes, and the state of each resource.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    pub(crate) states: Vec<(Subject, State)>,
}

/// `metadata.uid`.
pub(crate) fn uid(resource: &impl kube::ResourceExt) -> Option<Uuid> {
    resource.uid()?.parse().ok()
}

/// `metadata.generation`.
pub(crate) fn generation(resource: &impl kube::ResourceExt) -> i64 {
    resource.meta().generation.unwrap_or_default()
}

impl Observed {
    /// Plans the writes at a time.
    pub(crate) fn plan(&self, now: Instant) -> Plan {
        let mut plan = Plan::default();
        for resource in &self.tenants {
            self.plan_tenant(resource, now, &mut plan);
        }
        let tenants: HashMap<String, &SvcTenant> =
            self.tenants.iter().map(|tenant| (tenant.name_any(), &**tenant)).collect();
        for resource in &self.producers {
            self.plan_producer(resource, &tenants, now, &mut plan);
        }
        for resource in &self.consumers {
            self.plan_consumer(resource, &tenants, now, &mut plan);
        }
        self.plan_orphans(now, &mut plan);
        // Removals first: they must not wait for the writes of others. The order is stable otherwise.
        plan.writes.sort_by_key(|write| write.removal().is_none());
        plan
    }

    fn failure(&self, uid: Uuid, generation: i64) -> Option<&Failure> {
        self.failures.get(&uid).filter(|failure| failure.generation == generation)
    }

    /// Returns whether a deletion may be tried now.
    fn may_delete(&self, uid: Uuid, now: Instant) -> bool {
        self.failure(uid, DELETION).is_none_or(|failure| failure.retry_at <= now)
    }

    fn plan_tenant(&self, resource: &Arc<SvcTenant>, now: Instant, plan: &mut Plan) {
        let (Some(uid), generation, name) = (uid(&**resource), generation(&**resource), resource.name_any())
        else {
            return;
        };
        // The API server admits only valid ids.
        let Ok(tenant_id) = name.parse::<TenantId>() else { return };
        let owner = Owner { uid, generation };
        let failure = self.failure(uid, generation);
        let may_write = failure.is_none_or(|failure| failure.retry_at <= now);
        let has_finalizer = resource.finalizers().iter().any(|name| name == FINALIZER);
        let is_outdated =
            self.outdated.get(&uid).is_some_and(|version| *version == resource.resource_version());
        if resource.metadata.deletion_timestamp.is_some() {
            if let Some(stored_tenants) = &self.stored_tenants
                && has_finalizer
                && may_write
                && !is_outdated
            {
                let resource = Arc::clone(resource);
                // A tenant that was never created, or belongs to another resource, is left as it is.
                let is_owned = stored_tenants.get(&tenant_id).is_some_and(|stored| stored.owner.uid == uid);
                plan.writes.push(if is_owned {
                    let desired = ManagedTenant {
                        status: TenantStatus::Suspended,
                        adopt: false,
                        ..desired(&resource, owner)
                    };
                    Write::Suspend { resource, tenant_id, desired }
                } else {
                    Write::SetFinalizer { resource, present: false }
                });
            }
            return;
        }
        let Some(stored_tenants) = &self.stored_tenants else {
            let message = "The operator has not read the tenants from identity yet.";
            let state = State::new(Progress::Reconciling, Reason::IdentityUnavailable, message);
            plan.states.push((Subject::Tenant(Arc::clone(resource)), state));
            return;
        };
        let mut writes = Vec::new();
        let needs_finalizer = resource.spec.deletion_policy == DeletionPolicy::Suspend;
        if needs_finalizer != has_finalizer && !is_outdated {
            writes.push(Write::SetFinalizer { resource: Arc::clone(resource), present: needs_finalizer });
        }
        let stored = stored_tenants.get(&tenant_id);
        let is_stored = stored.is_some_and(|stored| stored.owner == owner && !stored.is_drifted);
        if let Some(stored) = stored.filter(|_| is_stored) {
            writes.extend(self.plan_secret(resource, stored));
        } else {
            let desired = desired(resource, owner);
            writes.push(Write::PutTenant { resource: Arc::clone(resource), tenant_id, desired });
        }
        let state = match failure {
            Some(failure) if !writes.is_empty() => failure.state.clone(),
            // Also the Secret is written.
            _ if is_stored && writes.is_empty() => {
                State::new(Progress::Ready, Reason::Provisioned, "The tenant has the desired state.")
            }
            _ => State::new(Progress::Reconciling, Reason::Pending, "The tenant is being written."),
        };
        plan.states.push((Subject::Tenant(Arc::clone(resource)), state));
        if may_write {
            plan.writes.extend(writes);
        }
    }

    /// The Secret exists with the present token while the invite can be accepted.
    fn plan_secret(&self, resource: &Arc<SvcTenant>, stored: &StoredTenant) -> Option<Write> {
        let in_secret = self.secrets.get(stored.tenant_id.as_str());
        let (resource, tenant_id) = (Arc::clone(resource), stored.tenant_id.clone());
        match &stored.invite {
            Some(invite) if matches!(invite.status, InviteStatus::Pending | InviteStatus::Expired) => {
                let pending_until = (invite.status == InviteStatus::Pending).then_some(invite.expires_at);
                if pending_until.is_some() && in_secret == pending_until.as_ref() {
                    return None;
                }
                Some(Write::RenewInvite { resource, tenant_id, owner: stored.owner, pending_until })
            }
            _ => in_secret.map(|_| Write::DeleteSecret { resource }),
        }
    }

    /// Releases tenants and deletes producers and consumers without a resource.
    fn plan_orphans(&self, now: Instant, plan: &mut Plan) {
        let tenants: HashSet<Uuid> = self.tenants.iter().filter_map(|tenant| uid(&**tenant)).collect();
        for stored in self.stored_tenants.iter().flat_map(|stored| stored.values()) {
            if !tenants.contains(&stored.owner.uid) && self.may_delete(stored.owner.uid, now) {
                let (tenant_id, owner) = (stored.tenant_id.clone(), stored.owner);
                plan.writes.push(Write::Release { tenant_id, owner });
            }
        }
        let producers = present(&self.producers);
        for (uid, stored) in self.stored_producers.iter().flat_map(|stored| stored.iter()) {
            if !producers.contains(uid) && self.may_delete(*uid, now) {
                let tenant_id = stored.producer.tenant_id.clone();
                plan.writes.push(Write::DeleteProducer { uid: *uid, tenant_id, is_final: true });
            }
        }
        let consumers = present(&self.consumers);
        for (uid, stored) in self.stored_consumers.iter().flat_map(|stored| stored.iter()) {
            if !consumers.contains(uid) && self.may_delete(*uid, now) {
                let name = stored.consumer.name.clone();
                plan.writes.push(Write::DeleteConsumer { uid: *uid, name, not_allowed: None });
            }
        }
    }
}

/// The uids of resources. A foreign finalizer must not keep one that is being deleted.
fn present<K: kube::ResourceExt>(resources: &[Arc<K>]) -> HashSet<Uuid> {
    let present = resources.iter().filter(|resource| resource.meta().deletion_timestamp.is_none());
    present.filter_map(|resource| uid(&**resource)).collect()
}

/// The desired state of a tenant.
fn desired(resource: &SvcTenant, owner: Owner) -> ManagedTenant {
    let spec = &resource.spec;
    ManagedTenant {
        owner,
        adopt: spec.adoption == Adoption::IfUnowned,
        take_over_from: Vec::new(),
        display_name: spec.display_name.clone(),
        status: match spec.state {
            TenantState::Active => TenantStatus::Active,
            TenantState::Suspended => TenantStatus::Suspended,
        },
        quota: Quota {
            events_per_second: spec.quota.events_per_second,
            bytes_per_second: spec.quota.bytes_per_second,
        },
        second_factor: match spec.second_factor {
            RequiredFactor::Optional => SecondFactorPolicy::Optional,
            RequiredFactor::Administrators => SecondFactorPolicy::Administrators,
            RequiredFactor::Everyone => SecondFactorPolicy::Everyone,
        },
        password_min_length: spec.password_min_length,
        passkey_login: Some(spec.passkey_login),
        admin: spec.admin_email.clone().map(|email| FirstAdmin {
            email,
            delivery: match spec.invite_delivery {
                InviteDelivery::Secret => Delivery::Response,
                InviteDelivery::Email => Delivery::Email,
            },
        }),
    }
}

#[cfg(test)]
mod tests;
