//! Holds the removals of a new leader that does not find many resources, until a person confirms them. A mistake is more likely than the
//! deletion of many resources while no operator ran.

use std::collections::HashSet;

use contract::managed::ServiceAccount;
use kube::ResourceExt as _;
use uuid::Uuid;

use crate::plan::{Observed, Plan, Write};
use crate::status::Kind;

/// Removals of one kind that a new leader executes without a confirmation, or a tenth of the stored objects if that is more.
const FEW: usize = 3;

/// The removals that a leader holds. Those of resources that disappear later are not held.
#[derive(Default)]
pub(crate) struct Guard {
    /// Removals of one kind that the configuration confirms.
    confirmed: usize,
    /// By kind.
    held: [Held; Kind::ALL.len()],
}

/// The held removals of one kind. `None` before the first complete plan.
#[derive(Default)]
struct Held(Option<HashSet<Uuid>>);

impl Guard {
    pub(crate) fn new(confirmed: usize) -> Self {
        Self { confirmed, ..Self::default() }
    }

    /// Removes the held removals from a plan.
    pub(crate) fn hold(&mut self, plan: &mut Plan, observed: &Observed) {
        let missing = missing(plan, observed);
        for (kind, held) in Kind::ALL.into_iter().zip(&mut self.held) {
            let stored = match kind {
                Kind::Tenant => observed.stored_tenants.as_ref().map(|stored| stored.len()),
                Kind::Producer => observed.stored_producers.as_ref().map(|stored| stored.len()),
                Kind::Consumer => observed.stored_consumers.as_ref().map(|stored| stored.len()),
            };
            held.update(kind, &missing, stored, self.confirmed);
        }
        plan.writes.retain(|write| {
            write.removal().is_none_or(|(kind, uid)| !self.held[kind as usize].contains(uid))
        });
    }

    /// The number of held removals of a kind.
    pub(crate) fn held(&self, kind: Kind) -> usize {
        self.held[kind as usize].0.as_ref().map_or(0, HashSet::len)
    }
}

/// The removals of a plan, except those of resources that were created again: of a tenant with the same name, or of a producer with the
/// same service account. A consumer that was created again would lose its position.
fn missing(plan: &Plan, observed: &Observed) -> Vec<(Kind, Uuid)> {
    let removals = plan.writes.iter().filter_map(|write| Some((write, write.removal()?)));
    let removals: Vec<_> = removals.collect();
    if removals.is_empty() {
        return Vec::new();
    }
    let tenants: HashSet<String> = observed.tenants.iter().map(|tenant| tenant.name_any()).collect();
    let account = |producer: &crate::resources::SvcProducer| ServiceAccount {
        namespace: producer.namespace().unwrap_or_default(),
        name: producer.spec.service_account.clone(),
    };
    let accounts: HashSet<ServiceAccount> = observed.producers.iter().map(|each| account(each)).collect();
    let stored = observed.stored_producers.as_ref();
    let is_created_again = |write: &Write| match write {
        Write::Release { tenant_id, .. } => tenants.contains(tenant_id.as_str()),
        Write::DeleteProducer { uid, is_final: true, .. } => stored
            .and_then(|stored| stored.get(uid))
            .is_some_and(|stored| accounts.contains(&stored.producer.service_account)),
        _ => false,
    };
    removals.into_iter().filter(|(write, _)| !is_created_again(write)).map(|(_, removal)| removal).collect()
}

impl Held {
    fn contains(&self, uid: Uuid) -> bool {
        self.0.as_ref().is_some_and(|held| held.contains(&uid))
    }

    fn update(&mut self, kind: Kind, missing: &[(Kind, Uuid)], stored: Option<usize>, confirmed: usize) {
        let missing: HashSet<Uuid> =
            missing.iter().filter(|(of, _)| *of == kind).map(|(_, uid)| *uid).collect();
        match (&mut self.0, stored) {
            (Some(held), _) => held.retain(|uid| missing.contains(uid)),
            (none, Some(stored)) => {
                let (count, limit) = (missing.len(), FEW.max(stored / 10).max(confirmed));
                let is_held = count > limit;
                if is_held {
                    let uids: Vec<_> = missing.iter().take(10).map(Uuid::to_string).collect();
                    tracing::error!(
                        kind = kind.name(),
                        count,
                        limit,
                        uids = uids.join(" "),
                        "too many resources are missing or not allowed at the start; held the releases. If this is intended, set \
                         SVC_CONFIRMED_RELEASES to the count"
                    );
                }
                *none = Some(if is_held { missing } else { HashSet::new() });
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contract::managed::{Owner, Producer, StoredProducer, StoredTenant};

    use super::*;
    use crate::resources::{ConsumerSpec, SvcConsumer, SvcTenant, TenantSpec};

    fn id(number: u128) -> tenancy::TenantId {
        format!("t-{number}").parse().unwrap()
    }

    /// This number of stored tenants.
    fn observed(stored: u128) -> Observed {
        let tenant = |number| {
            let owner = Owner { uid: Uuid::from_u128(number), generation: 1 };
            (id(number), StoredTenant { tenant_id: id(number), owner, is_drifted: false, invite: None })
        };
        let stored_tenants = Some(Arc::new((0..stored).map(tenant).collect()));
        Observed { stored_tenants, stored_producers: Some(Arc::default()), ..Observed::default() }
    }

    fn releases(numbers: impl IntoIterator<Item = u128>) -> Plan {
        let release = |number| Write::Release {
            tenant_id: id(number),
            owner: Owner { uid: Uuid::from_u128(number), generation: 1 },
        };
        Plan { writes: numbers.into_iter().map(release).collect(), ..Plan::default() }
    }

    /// Returns the number of releases that are not held.
    fn released(guard: &mut Guard, observed: &Observed, numbers: impl IntoIterator<Item = u128>) -> usize {
        let mut plan = releases(numbers);
        guard.hold(&mut plan, observed);
        plan.writes.len()
    }

    #[test]
    fn a_new_leader_releases_at_most_three_or_a_tenth() {
        for (stored, missing, expected) in [(3, 3, 3), (20, 4, 0), (100, 10, 10), (100, 11, 0)] {
            let found = released(&mut Guard::default(), &observed(stored), 0..missing);
            assert_eq!(found, expected, "{missing} of {stored}");
        }
    }

    #[test]
    fn the_configuration_confirms_a_number() {
        assert_eq!(released(&mut Guard::new(19), &observed(20), 0..20), 0);
        assert_eq!(released(&mut Guard::new(20), &observed(20), 0..20), 20);
    }

    #[test]
    fn resources_that_are_deleted_later_are_released_while_others_are_held() {
        let (mut guard, observed) = (Guard::default(), observed(20));
        assert_eq!(released(&mut guard, &observed, 0..10), 0);
        assert_eq!(guard.held(Kind::Tenant), 10);
        // The resources 0 to 4 exist again, and 15 to 19 are deleted.
        assert_eq!(released(&mut guard, &observed, (5..10).chain(15..20)), 5);
        assert_eq!(guard.held(Kind::Tenant), 5);
        assert_eq!(released(&mut guard, &observed, 0..10), 5);
    }

    #[test]
    fn resources_that_were_created_again_are_not_missing() {
        let mut observed = observed(20);
        let spec: TenantSpec = serde_json::from_str(r#"{ "displayName": "Again" }"#).unwrap();
        let again = |number| Arc::new(SvcTenant::new(&format!("t-{number}"), spec.clone()));
        observed.tenants = (0..18).map(again).collect();
        assert_eq!(released(&mut Guard::default(), &observed, 0..20), 20);
    }

    #[test]
    fn a_consumer_that_was_created_again_is_held_because_it_would_lose_its_position() {
        let name = |number| format!("consumer-{number}").parse().unwrap();
        let deletion = |number| Write::DeleteConsumer {
            uid: Uuid::from_u128(number),
            name: name(number),
            not_allowed: None,
        };
        let spec: ConsumerSpec = serde_json::from_str(r#"{ "tenant": "acme" }"#).unwrap();
        let again = |number: u128| Arc::new(SvcConsumer::new(&format!("consumer-{number}"), spec.clone()));
        let observed = Observed {
            consumers: (0..10).map(again).collect(),
            stored_consumers: Some(Arc::default()),
            ..observed(0)
        };
        let mut plan = Plan { writes: (0..10).map(deletion).collect(), ..Plan::default() };
        let mut guard = Guard::default();
        guard.hold(&mut plan, &observed);
        assert_eq!((plan.writes.len(), guard.held(Kind::Consumer)), (0, 10));
    }

    #[test]
    fn tenants_and_producers_are_held_separately() {
        let mut observed = observed(20);
        let producer = |number: u128| StoredProducer {
            uid: Uuid::from_u128(number),
            producer: Producer {
                tenant_id: id(0),
                service_account: format!("apps/a-{number}").parse().unwrap(),
                source_ids: vec!["a".to_owned()],
                generation: 1,
            },
        };
        let stored = (50..60).map(|number| (Uuid::from_u128(number), producer(number)));
        observed.stored_producers = Some(Arc::new(stored.collect()));
        let deletion = |is_final| {
            move |number| Write::DeleteProducer { uid: Uuid::from_u128(number), tenant_id: id(0), is_final }
        };
        for is_final in [true, false] {
            let mut plan = releases(0..2);
            plan.writes.extend((50..60).map(deletion(is_final)));
            let mut guard = Guard::default();
            guard.hold(&mut plan, &observed);
            assert_eq!(plan.writes, releases(0..2).writes, "{is_final}");
            assert_eq!((guard.held(Kind::Tenant), guard.held(Kind::Producer)), (0, 10));
        }
    }

    #[test]
    fn the_first_complete_list_decides() {
        let mut guard = Guard::default();
        guard.hold(&mut Plan::default(), &Observed::default());
        assert_eq!(released(&mut guard, &observed(20), 0..10), 0);
    }
}
