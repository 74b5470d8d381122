use contract::managed::{ConsumerLag, StoredInvite};
use hashing::TokenDigest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use proptest::prelude::*;

use super::*;
use crate::login_secret;
use crate::resources::{
    ConsumerSpec, LabelOperator, LabelRequirement, NamespaceSelector, ProducerSpec, QuotaSpec,
    RequiredFactor, TenantSpec,
};

/// A selector of all namespaces.
fn everything() -> NamespaceSelector {
    let key = "none".to_owned();
    let requirement = LabelRequirement { key, operator: LabelOperator::DoesNotExist, values: Vec::new() };
    NamespaceSelector { match_expressions: vec![requirement], ..NamespaceSelector::default() }
}

fn metadata(name: &str, number: u128, generation: i64) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(Uuid::from_u128(number).to_string()),
        generation: Some(generation),
        ..ObjectMeta::default()
    }
}

fn tenant(name: &str, number: u128, generation: i64) -> SvcTenant {
    let spec = TenantSpec {
        display_name: name.to_owned(),
        admin_email: Some("ada@example.com".to_owned()),
        invite_delivery: InviteDelivery::Secret,
        state: TenantState::Active,
        quota: QuotaSpec::default(),
        second_factor: RequiredFactor::Optional,
        password_min_length: None,
        passkey_login: true,
        allowed_namespaces: Some(NamespaceSelector {
            match_labels: [("tenant".to_owned(), name.to_owned())].into(),
            match_expressions: Vec::new(),
        }),
        deletion_policy: DeletionPolicy::Retain,
        adoption: Adoption::Never,
    };
    SvcTenant { metadata: metadata(name, number, generation), spec, status: None }
}

fn producer(tenant: &str, number: u128, generation: i64) -> SvcProducer {
    let mut metadata = metadata("collector", number, generation);
    metadata.namespace = Some("apps".to_owned());
    let spec = ProducerSpec {
        tenant: tenant.to_owned(),
        service_account: format!("account-{number}"),
        source_ids: vec!["fw-1".to_owned()],
    };
    SvcProducer { metadata, spec, status: None }
}

fn consumer(tenant: &str, number: u128, generation: i64) -> SvcConsumer {
    let mut metadata = metadata(&format!("consumer-{number}"), number, generation);
    metadata.namespace = Some("apps".to_owned());
    let spec = ConsumerSpec {
        tenant: tenant.to_owned(),
        event_types: vec!["USER_LOGIN".to_owned()],
        partitions: None,
        start: "all".to_owned(),
        ack_wait_seconds: Some(60),
        max_ack_pending: None,
    };
    SvcConsumer { metadata, spec, status: None }
}

/// What ingest stores for a written consumer.
fn stored_consumer(uid: Uuid, generation: i64, consumer: &CreateConsumer, password: &str) -> StoredConsumer {
    StoredConsumer {
        owner: Owner { uid, generation },
        consumer: consumer.clone(),
        streams: vec!["UDM".to_owned()],
        login_digest: Some(TokenDigest::from_text(password).to_hex()),
        lag: ConsumerLag::default(),
    }
}

fn id(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn stored(name: &str, number: u128, generation: i64) -> (TenantId, StoredTenant) {
    let owner = Owner { uid: Uuid::from_u128(number), generation };
    (id(name), StoredTenant { tenant_id: id(name), owner, is_drifted: false, invite: None })
}

/// The tenant `acme` (1), its producer (2) and its consumer (3) in the namespace `apps`, all stored.
fn converged() -> Observed {
    let mut observed = Observed {
        tenants: vec![Arc::new(tenant("acme", 1, 1))],
        producers: vec![Arc::new(producer("acme", 2, 1))],
        consumers: vec![Arc::new(consumer("acme", 3, 1))],
        nats_url: "nats://nats.example".into(),
        namespaces: [("apps".to_owned(), [("tenant".to_owned(), "acme".to_owned())].into())].into(),
        stored_tenants: Some(Arc::new([stored("acme", 1, 1)].into())),
        stored_producers: Some(Arc::new(HashMap::new())),
        stored_consumers: Some(Arc::new(HashMap::new())),
        ..Observed::default()
    };
    execute_all(&mut observed);
    observed
}

fn tenants_in(observed: &mut Observed) -> &mut HashMap<TenantId, StoredTenant> {
    Arc::make_mut(observed.stored_tenants.as_mut().unwrap())
}

fn producers_in(observed: &mut Observed) -> &mut HashMap<Uuid, StoredProducer> {
    Arc::make_mut(observed.stored_producers.as_mut().unwrap())
}

fn consumers_in(observed: &mut Observed) -> &mut HashMap<Uuid, StoredConsumer> {
    Arc::make_mut(observed.stored_consumers.as_mut().unwrap())
}

/// Changes the stored state as identity, session and ingest do.
fn execute(observed: &mut Observed, write: &Write) {
    match write {
        Write::PutTenant { tenant_id, desired, .. } => {
            let before = observed.stored_tenants.as_ref().unwrap().get(tenant_id);
            if before.is_some_and(|stored| stored.owner.uid != desired.owner.uid) {
                return;
            }
            let invite = before.and_then(|stored| stored.invite.clone());
            let (tenant_id, owner) = (tenant_id.clone(), desired.owner);
            let tenant = StoredTenant { tenant_id: tenant_id.clone(), owner, is_drifted: false, invite };
            tenants_in(observed).insert(tenant_id, tenant);
        }
        Write::RenewInvite { resource, tenant_id, .. } => {
            let expires_at = DateTime::UNIX_EPOCH + chrono::TimeDelta::days(1);
            let invite = StoredInvite { status: InviteStatus::Pending, expires_at };
            tenants_in(observed).get_mut(tenant_id).unwrap().invite = Some(invite);
            observed.secrets.insert(resource.name_any(), expires_at);
        }
        Write::DeleteSecret { resource } => drop(observed.secrets.remove(&resource.name_any())),
        Write::Suspend { tenant_id, resource, .. } => {
            tenants_in(observed).remove(tenant_id);
            observed.tenants.retain(|tenant| uid(&**tenant) != uid(&**resource));
        }
        Write::Release { tenant_id, .. } => drop(tenants_in(observed).remove(tenant_id)),
        Write::PutProducer { uid, producer, .. } => {
            let stored = StoredProducer { uid: *uid, producer: producer.clone() };
            producers_in(observed).insert(*uid, stored);
        }
        Write::DeleteProducer { uid, .. } => drop(producers_in(observed).remove(uid)),
        Write::PutConsumer { resource, uid, consumer } => {
            // The Secret is not written: the leader was killed.
            let before = observed.stored_consumers.as_ref().unwrap().get(uid);
            let login_digest = before.map(|stored| stored.login_digest.clone());
            let mut stored = stored_consumer(*uid, generation(&**resource), consumer, "first");
            stored.login_digest = login_digest.unwrap_or(stored.login_digest);
            consumers_in(observed).insert(*uid, stored);
        }
        Write::PutLogin { resource, uid, stored } => {
            let key = login_secret::key("apps", &resource.name_any());
            let kept = observed.logins.get(&key).and_then(|found| found.password_of(stored));
            let password = kept.unwrap_or("next").to_owned();
            consumers_in(observed).get_mut(uid).unwrap().login_digest =
                Some(TokenDigest::from_text(&password).to_hex());
            observed.logins.insert(key, LoginSecret::new(stored, &password, &observed.nats_url));
        }
        Write::DeleteConsumer { uid, not_allowed: None, .. } => drop(consumers_in(observed).remove(uid)),
        Write::DeleteConsumer { uid, not_allowed: Some(resource), .. } => {
            observed.logins.remove(&login_secret::key("apps", &resource.name_any()));
            consumers_in(observed).get_mut(uid).unwrap().login_digest = None;
        }
        Write::SetFinalizer { resource, present } => {
            let mut changed = (**resource).clone();
            changed.metadata.finalizers = present.then(|| vec![FINALIZER.to_owned()]);
            observed.tenants.retain(|tenant| uid(&**tenant) != uid(&**resource));
            observed.tenants.push(Arc::new(changed));
        }
    }
}

/// Executes plans until one is empty. Returns the number of plans.
fn execute_all(observed: &mut Observed) -> usize {
    for plans in 0..10 {
        let plan = observed.plan(Instant::now());
        if plan.writes.is_empty() {
            return plans;
        }
        for write in &plan.writes {
            execute(observed, write);
        }
    }
    panic!("the plans do not converge");
}

fn reasons_of(observed: &Observed, kind: Kind) -> Vec<Reason> {
    let states = observed.plan(Instant::now()).states;
    states.iter().filter(|(subject, _)| subject.kind() == kind).map(|(_, state)| state.reason).collect()
}

fn reasons(observed: &Observed) -> (Vec<Reason>, Vec<Reason>) {
    (reasons_of(observed, Kind::Tenant), reasons_of(observed, Kind::Producer))
}

#[tokio::test]
async fn a_stored_tenant_and_its_producer_need_no_write() {
    let observed = converged();
    assert_eq!(observed.plan(Instant::now()).writes, []);
    assert_eq!(reasons(&observed), (vec![Reason::Provisioned], vec![Reason::Provisioned]));
    assert_eq!(reasons_of(&observed, Kind::Consumer), [Reason::Provisioned]);
}

#[tokio::test]
async fn a_new_tenant_is_written_before_its_producers() {
    let mut observed = Observed {
        stored_tenants: Some(Arc::new(HashMap::new())),
        stored_producers: Some(Arc::new(HashMap::new())),
        stored_consumers: Some(Arc::new(HashMap::new())),
        ..converged()
    };
    let plan = observed.plan(Instant::now());
    assert!(matches!(plan.writes.as_slice(), [Write::PutTenant { .. }]), "{:?}", plan.writes);
    assert_eq!(reasons(&observed), (vec![Reason::Pending], vec![Reason::TenantNotReady]));
    execute_all(&mut observed);
    assert_eq!(observed.stored_producers.as_ref().unwrap().len(), 1);
    assert_eq!(observed.stored_consumers.as_ref().unwrap().len(), 1);
}

/// The writes of the consumer after a change of the converged state.
fn after(change: impl FnOnce(&mut Observed)) -> Vec<Write> {
    let mut observed = converged();
    change(&mut observed);
    let writes = observed.plan(Instant::now()).writes;
    execute_all(&mut observed);
    let password = |observed: &Observed| {
        let stored = observed.stored_consumers.as_ref().unwrap().values().next()?.clone();
        observed.logins.values().next()?.password_of(&stored).map(str::to_owned)
    };
    assert!(password(&observed).is_some(), "the Secret has the login");
    writes
}

#[tokio::test]
async fn a_lost_or_changed_secret_and_a_replaced_login_are_written_again() {
    let uid = Uuid::from_u128(3);
    let stored = |observed: &Observed| observed.stored_consumers.as_ref().unwrap()[&uid].clone();
    let secret = |observed: &mut Observed, password: &str, url: &str| {
        let other = LoginSecret::new(&stored(observed), password, url);
        *observed.logins.values_mut().next().unwrap() = other;
    };
    for writes in [
        after(|observed| observed.logins.clear()),
        after(|observed| secret(observed, "changed", "nats://nats.example")),
        after(|observed| secret(observed, "next", "nats://other.example")),
        after(|observed| observed.nats_url = "nats://other.example".into()),
        after(|observed| {
            consumers_in(observed).get_mut(&uid).unwrap().login_digest =
                Some(TokenDigest::from_text("replaced").to_hex());
        }),
        after(|observed| consumers_in(observed).get_mut(&uid).unwrap().login_digest = None),
    ] {
        assert!(matches!(writes.as_slice(), [Write::PutLogin { .. }]), "{writes:?}");
    }
}

#[tokio::test]
async fn a_change_of_a_consumer_is_written_and_an_invalid_start_is_reported() {
    for writes in [
        after(|observed| observed.consumers = vec![Arc::new(consumer("acme", 3, 2))]),
        after(|observed| consumers_in(observed).clear()),
        after(|observed| {
            let stored = consumers_in(observed).get_mut(&Uuid::from_u128(3)).unwrap();
            stored.consumer.max_ack_pending = Some(7);
        }),
    ] {
        assert!(matches!(writes.as_slice(), [Write::PutConsumer { .. }]), "{writes:?}");
    }
    let mut observed = converged();
    let mut invalid = consumer("acme", 3, 1);
    invalid.spec.start = "2026-13-31T12:00:00Z".to_owned();
    observed.consumers = vec![Arc::new(invalid)];
    assert_eq!(observed.plan(Instant::now()).writes, []);
    assert_eq!(reasons_of(&observed, Kind::Consumer), [Reason::Invalid]);
}

#[tokio::test]
async fn nothing_is_written_before_the_stored_state_was_read() {
    let observed = Observed { stored_tenants: None, ..converged() };
    assert_eq!(observed.plan(Instant::now()).writes, []);
    assert_eq!(reasons(&observed), (vec![Reason::IdentityUnavailable], vec![Reason::IdentityUnavailable]));
    let observed = Observed { stored_producers: None, ..converged() };
    assert_eq!(observed.plan(Instant::now()).writes, []);
    assert_eq!(reasons(&observed).1, [Reason::SessionUnavailable]);
    let observed = Observed { stored_consumers: None, ..converged() };
    assert_eq!(observed.plan(Instant::now()).writes, []);
    assert_eq!(reasons_of(&observed, Kind::Consumer), [Reason::IngestUnavailable]);
}

#[tokio::test]
async fn a_changed_finalizer_is_not_written_again_before_the_watch_reports_it() {
    let mut observed = converged();
    let mut suspend = tenant("acme", 1, 1);
    suspend.spec.deletion_policy = DeletionPolicy::Suspend;
    suspend.metadata.resource_version = Some("7".to_owned());
    observed.tenants = vec![Arc::new(suspend)];
    assert_eq!(observed.plan(Instant::now()).writes.len(), 1);
    observed.outdated.insert(Uuid::from_u128(1), Some("7".to_owned()));
    assert_eq!(observed.plan(Instant::now()).writes, []);
}

#[tokio::test]
async fn drift_and_a_new_generation_are_written() {
    let mut drifted = converged();
    tenants_in(&mut drifted).get_mut(&id("acme")).unwrap().is_drifted = true;
    let mut changed = converged();
    changed.tenants = vec![Arc::new(tenant("acme", 1, 2))];
    for observed in [drifted, changed] {
        let writes = observed.plan(Instant::now()).writes;
        assert!(matches!(writes.as_slice(), [Write::PutTenant { .. }]), "{writes:?}");
    }
}

#[tokio::test]
async fn the_secret_follows_the_invite() {
    let term = DateTime::UNIX_EPOCH;
    let with = |status: Option<InviteStatus>, secret: Option<DateTime<Utc>>| {
        let mut observed = converged();
        let invite = status.map(|status| StoredInvite { status, expires_at: term });
        tenants_in(&mut observed).get_mut(&id("acme")).unwrap().invite = invite;
        observed.secrets = secret.map(|term| ("acme".to_owned(), term)).into_iter().collect();
        observed.plan(Instant::now()).writes
    };
    let (renew, delete) = (
        |write: &Write| matches!(write, Write::RenewInvite { .. }),
        |write: &Write| matches!(write, Write::DeleteSecret { .. }),
    );
    let earlier = Some(term - chrono::TimeDelta::days(1));
    assert_eq!(with(Some(InviteStatus::Pending), Some(term)), []);
    for writes in [
        with(Some(InviteStatus::Pending), None),
        with(Some(InviteStatus::Pending), earlier),
        with(Some(InviteStatus::Expired), Some(term)),
        with(Some(InviteStatus::Expired), None),
    ] {
        assert!(writes.len() == 1 && writes.iter().all(renew), "{writes:?}");
    }
    for status in [Some(InviteStatus::Accepted), Some(InviteStatus::Revoked), None] {
        let writes = with(status, Some(term));
        assert!(writes.len() == 1 && writes.iter().all(delete), "{writes:?}");
        assert_eq!(with(status, None), []);
    }
}

#[tokio::test]
async fn in_a_namespace_that_is_not_allowed_a_producer_is_deleted_and_a_consumer_loses_its_login() {
    let mut without_label = converged();
    without_label.namespaces.insert("apps".to_owned(), BTreeMap::new());
    let mut without_selector = converged();
    let mut changed = tenant("acme", 1, 1);
    changed.spec.allowed_namespaces = None;
    without_selector.tenants = vec![Arc::new(changed)];
    let mut without_tenant = converged();
    without_tenant.tenants.clear();
    without_tenant.stored_tenants = Some(Arc::new(HashMap::new()));
    let mut owned_elsewhere = converged();
    owned_elsewhere.stored_tenants = Some(Arc::new([stored("acme", 9, 1)].into()));
    owned_elsewhere.failures.insert(Uuid::from_u128(9), failure(DELETION));
    owned_elsewhere.failures.insert(Uuid::from_u128(1), failure(1));
    for (mut observed, reason) in [
        (without_label, Reason::NamespaceNotAllowed),
        (without_selector, Reason::NamespaceNotAllowed),
        (without_tenant, Reason::TenantNotFound),
        (owned_elsewhere, Reason::TenantNotReady),
    ] {
        assert_eq!(reasons(&observed).1, [reason]);
        assert_eq!(reasons_of(&observed, Kind::Consumer), [reason]);
        execute_all(&mut observed);
        assert_eq!(observed.stored_producers.as_ref().unwrap().len(), 0, "{reason:?}");
        assert_eq!(observed.logins.len(), 0, "{reason:?}");
        let kept: Vec<_> = consumers_in(&mut observed).values().map(|stored| &stored.login_digest).collect();
        assert_eq!(kept, [&None], "{reason:?}");
    }
}

#[tokio::test]
async fn a_tenant_of_another_operator_keeps_the_producers_and_consumers_of_this_one() {
    let mut taken_over = converged();
    taken_over.stored_tenants = Some(Arc::new(HashMap::new()));
    taken_over.failures.insert(Uuid::from_u128(1), failure(1));
    assert_eq!(reasons(&taken_over).1, [Reason::TenantNotReady]);
    assert_eq!(taken_over.plan(Instant::now()).writes, []);
}

#[tokio::test]
async fn a_tenant_that_is_suspended_at_its_deletion_is_not_adopted() {
    let mut observed = converged();
    let mut deleted = tenant("acme", 1, 2);
    deleted.spec.adoption = Adoption::IfUnowned;
    deleted.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    observed.tenants = vec![Arc::new(deleted)];
    let writes = observed.plan(Instant::now()).writes;
    let [Write::Suspend { desired, .. }] = writes.as_slice() else { panic!("{writes:?}") };
    assert!(!desired.adopt && desired.take_over_from.is_empty());
}

#[tokio::test]
async fn a_deleted_resource_suspends_only_a_tenant_that_it_owns() {
    let mut observed = converged();
    let mut deleted = tenant("acme", 1, 2);
    deleted.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    observed.tenants = vec![Arc::new(deleted)];
    let is_suspended = |observed: &Observed| {
        let writes = observed.plan(Instant::now()).writes;
        writes.iter().find_map(|write| match write {
            Write::Suspend { .. } => Some(true),
            Write::SetFinalizer { present: false, .. } => Some(false),
            _ => None,
        })
    };
    assert_eq!(is_suspended(&observed), Some(true));
    tenants_in(&mut observed).values_mut().next().unwrap().owner.uid = Uuid::from_u128(99);
    assert_eq!(is_suspended(&observed), Some(false), "it belongs to another resource");
    tenants_in(&mut observed).clear();
    assert_eq!(is_suspended(&observed), Some(false), "it was never created");
    observed.stored_tenants = None;
    assert_eq!(is_suspended(&observed), None, "identity has not answered yet");
}

#[tokio::test]
async fn a_selector_can_allow_all_namespaces_and_an_empty_one_allows_none() {
    let mut observed = converged();
    let mut changed = tenant("acme", 1, 1);
    changed.spec.allowed_namespaces = Some(everything());
    observed.tenants = vec![Arc::new(changed)];
    observed.namespaces.insert("apps".to_owned(), BTreeMap::new());
    assert_eq!(reasons(&observed).1, [Reason::Provisioned]);
    let mut empty = tenant("acme", 1, 1);
    empty.spec.allowed_namespaces = Some(NamespaceSelector::default());
    observed.tenants = vec![Arc::new(empty)];
    assert_eq!(reasons(&observed).1, [Reason::NamespaceNotAllowed]);
}

#[tokio::test]
async fn without_its_resource_a_tenant_is_released_and_a_producer_or_consumer_deleted() {
    let mut observed = converged();
    observed.tenants.clear();
    observed.producers.clear();
    observed.consumers.clear();
    execute_all(&mut observed);
    assert_eq!(
        (observed.stored_tenants.as_ref().unwrap().len(), observed.stored_producers.as_ref().unwrap().len()),
        (0, 0)
    );
    assert_eq!(observed.stored_consumers.as_ref().unwrap().len(), 0);
}

#[tokio::test]
async fn only_the_policy_suspend_needs_the_finalizer() {
    let mut observed = converged();
    let mut suspend = tenant("acme", 1, 1);
    suspend.spec.deletion_policy = DeletionPolicy::Suspend;
    observed.tenants = vec![Arc::new(suspend)];
    execute_all(&mut observed);
    assert_eq!(observed.tenants[0].finalizers(), [FINALIZER]);
    let mut deleted = (*observed.tenants[0]).clone();
    deleted.metadata.deletion_timestamp = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
    observed.tenants = vec![Arc::new(deleted)];
    let writes = observed.plan(Instant::now()).writes;
    let [Write::Suspend { desired, .. }] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(desired.status, TenantStatus::Suspended);
}

fn failure(generation: i64) -> Failure {
    let state = State::new(Progress::Stalled, Reason::ManagedElsewhere, "");
    Failure { generation, state, attempts: 1, retry_at: Instant::now() + std::time::Duration::from_mins(1) }
}

#[tokio::test]
async fn a_failed_write_is_planned_again_after_its_delay_or_with_a_new_generation() {
    let mut observed = converged();
    observed.stored_tenants = Some(Arc::new(HashMap::new()));
    observed.stored_producers = Some(Arc::new(HashMap::new()));
    observed.stored_consumers = Some(Arc::new(HashMap::new()));
    observed.failures.insert(Uuid::from_u128(1), failure(1));
    assert_eq!(observed.plan(Instant::now()).writes, []);
    assert_eq!(reasons(&observed).0, [Reason::ManagedElsewhere]);
    assert_eq!(observed.plan(Instant::now() + std::time::Duration::from_mins(1)).writes.len(), 1);
    observed.tenants = vec![Arc::new(tenant("acme", 1, 2))];
    assert_eq!(observed.plan(Instant::now()).writes.len(), 1);
}

proptest! {
    #[test]
    fn every_state_converges_and_only_allowed_producers_and_consumers_have_access(
        tenants in prop::collection::btree_map(0_u8..4, (1_i64..3, any::<bool>(), any::<bool>()), 0..4),
        producers in prop::collection::btree_map(10_u8..16, (0_u8..5, 1_i64..3, any::<bool>()), 0..6),
        stored_tenants in prop::collection::btree_map(0_u8..4, (0_u8..6, 1_i64..3, any::<bool>()), 0..4),
        stored_producers in prop::collection::btree_map(8_u8..16, (0_u8..5, 1_i64..3), 0..6),
        consumers in prop::collection::btree_map(20_u8..26, (0_u8..5, 1_i64..3, any::<bool>()), 0..6),
        stored_consumers in prop::collection::btree_map(18_u8..26, (0_u8..5, 1_i64..3), 0..6),
    ) {
        let name = |number: u8| format!("tenant-{number}");
        let mut observed = Observed {
            stored_tenants: Some(Arc::new(HashMap::new())),
            stored_producers: Some(Arc::new(HashMap::new())),
            stored_consumers: Some(Arc::new(HashMap::new())),
            ..Observed::default()
        };
        for (number, (generation, allows, suspends)) in &tenants {
            let mut resource = tenant(&name(*number), (*number).into(), *generation);
            resource.spec.allowed_namespaces = allows.then(everything);
            if *suspends {
                resource.spec.deletion_policy = DeletionPolicy::Suspend;
            }
            observed.tenants.push(Arc::new(resource));
        }
        observed.namespaces.insert("apps".to_owned(), BTreeMap::new());
        for (number, (of, generation, is_terminating)) in &producers {
            let mut resource = producer(&name(*of), (*number).into(), *generation);
            resource.metadata.deletion_timestamp = is_terminating.then(|| Time(Timestamp::UNIX_EPOCH));
            observed.producers.push(Arc::new(resource));
        }
        for (number, (owner, generation, is_drifted)) in &stored_tenants {
            let (tenant_id, mut tenant) = stored(&name(*number), (*owner).into(), *generation);
            tenant.is_drifted = *is_drifted;
            tenants_in(&mut observed).insert(tenant_id, tenant);
        }
        for (number, (of, generation)) in &stored_producers {
            let uid = Uuid::from_u128((*number).into());
            let resource = producer(&name(*of), (*number).into(), *generation);
            let producer = managed::Producer {
                tenant_id: id(&name(*of)),
                service_account: managed::ServiceAccount { namespace: "apps".to_owned(), name: resource.spec.service_account },
                source_ids: Vec::new(),
                generation: *generation,
            };
            producers_in(&mut observed).insert(uid, StoredProducer { uid, producer });
        }
        for (number, (of, generation, is_terminating)) in &consumers {
            let mut resource = consumer(&name(*of), (*number).into(), *generation);
            resource.metadata.deletion_timestamp = is_terminating.then(|| Time(Timestamp::UNIX_EPOCH));
            observed.consumers.push(Arc::new(resource));
        }
        for (number, (of, generation)) in &stored_consumers {
            let uid = Uuid::from_u128((*number).into());
            let definition = serde_json::json!({ "name": format!("consumer-{number}"), "tenant_id": name(*of) });
            let definition = serde_json::from_value(definition).unwrap();
            consumers_in(&mut observed).insert(uid, stored_consumer(uid, *generation, &definition, "first"));
        }
        // A tenant of another owner is written never, so it stays in the plan. It is a conflict, which is not planned again.
        for _ in 0..4 {
            for write in observed.plan(Instant::now()).writes {
                if let Write::PutTenant { tenant_id, desired, .. } = &write
                    && observed.stored_tenants.as_ref().unwrap().get(tenant_id).is_some_and(|stored| stored.owner.uid != desired.owner.uid)
                {
                    observed.failures.insert(desired.owner.uid, failure(desired.owner.generation));
                }
                execute(&mut observed, &write);
            }
            observed.failures.clear();
        }
        let released: Vec<_> = observed.stored_tenants.as_ref().unwrap().values().map(|stored| stored.owner.uid).collect();
        for uid in released {
            prop_assert!(observed.tenants.iter().any(|tenant| super::uid(&**tenant) == Some(uid)) );
        }
        for stored in observed.stored_producers.as_ref().unwrap().values() {
            let allowed = observed.tenants.iter().any(|tenant| {
                tenant.name_any() == stored.producer.tenant_id.as_str() && tenant.spec.allowed_namespaces.is_some()
            });
            prop_assert!(allowed);
            let is_present = observed.producers.iter().any(|producer| {
                super::uid(&**producer) == Some(stored.uid) && producer.metadata.deletion_timestamp.is_none()
            });
            prop_assert!(is_present);
        }
        for stored in observed.stored_consumers.as_ref().unwrap().values() {
            let resource = observed.consumers.iter().find(|consumer| {
                super::uid(&***consumer) == Some(stored.owner.uid) && consumer.metadata.deletion_timestamp.is_none()
            });
            prop_assert!(resource.is_some());
            let allowed = observed.tenants.iter().any(|tenant| {
                resource.is_some_and(|consumer| tenant.name_any() == consumer.spec.tenant) && tenant.spec.allowed_namespaces.is_some()
            });
            let secret = observed.logins.get(&login_secret::key("apps", stored.consumer.name.as_str()));
            prop_assert!(allowed || (stored.login_digest.is_none() && secret.is_none()));
        }
    }
}
