//! Ownership of a tenant by a Kubernetes resource, and thereby by an operator: none → owned → released, and back.

use chrono::{DateTime, Utc};
use contract::managed::{Claim, Conflict, ManagedTenant, SETTLING_TIME};
use tenancy::InviteId;

/// The ownership of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) claim: Claim,
    /// The invite of the first administrator.
    pub(crate) invite_id: Option<InviteId>,
    /// The term of the invite, if the operator got its token.
    pub(crate) invite_expires_at: Option<DateTime<Utc>>,
    /// When the operator released it, because it did not find the resource.
    pub(crate) released_at: Option<DateTime<Utc>>,
    /// When the operator took it over from another one.
    pub(crate) taken_over_at: Option<DateTime<Utc>>,
}

impl Ownership {
    /// The ownership of a tenant that had no owner.
    pub(crate) fn new(claim: Claim) -> Self {
        Self { claim, invite_id: None, invite_expires_at: None, released_at: None, taken_over_at: None }
    }

    /// Requires that the resource of a write is the owner, and that no newer write of it is stored.
    pub(crate) fn require(&self, write: &Claim) -> Result<(), Conflict> {
        match self.released_at {
            Some(_) => Err(Conflict::Released),
            None => self.claim.require_next(write, &[], Conflict::NotReleased),
        }
    }

    /// Returns the ownership of an existing tenant after a write.
    pub(crate) fn claim(
        stored: Option<&Self>,
        claim: Claim,
        desired: &ManagedTenant,
        now: DateTime<Utc>,
    ) -> Result<Self, Conflict> {
        let (stored, taken_over_at) = match stored.map(|stored| (stored, stored.released_at)) {
            Some((stored, Some(released_at))) if stored.claim.owner.uid == claim.owner.uid => {
                stored.claim.require_return(claim.owner, released_at, now)?;
                (stored, None)
            }
            Some((stored, None)) => {
                let is_settled = stored.taken_over_at.is_none_or(|at| now >= at + SETTLING_TIME);
                let take_over_from = if is_settled { desired.take_over_from.as_slice() } else { &[] };
                stored.claim.require_next(&claim, take_over_from, Conflict::NotReleased)?;
                let is_same = stored.claim.operator == claim.operator;
                (stored, if is_same { stored.taken_over_at } else { Some(now) })
            }
            _ if desired.adopt => return Ok(Self::new(claim)),
            _ => return Err(Conflict::TenantExists),
        };
        Ok(Self { claim, released_at: None, taken_over_at, ..stored.clone() })
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use contract::TenantStatus;
    use contract::identity::{Quota, SecondFactorPolicy};
    use contract::managed::{OperatorId, Owner};
    use uuid::Uuid;

    use super::*;

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn operator(cluster: u128) -> OperatorId {
        OperatorId {
            cluster: Uuid::from_u128(cluster),
            namespace: "svc".to_owned(),
            release: "svc".to_owned(),
        }
    }

    fn owner(uid: u128, generation: i64) -> Owner {
        Owner { uid: Uuid::from_u128(uid), generation }
    }

    fn stored() -> Ownership {
        Ownership::new(Claim { operator: operator(1), owner: owner(1, 3) })
    }

    fn desired(owner: Owner) -> ManagedTenant {
        ManagedTenant {
            owner,
            adopt: false,
            take_over_from: Vec::new(),
            display_name: "Acme".to_owned(),
            status: TenantStatus::Active,
            quota: Quota::default(),
            second_factor: SecondFactorPolicy::Optional,
            password_min_length: None,
            passkey_login: None,
            admin: None,
        }
    }

    fn released(minutes: i64) -> Ownership {
        Ownership { released_at: Some(NOW - TimeDelta::minutes(minutes)), ..stored() }
    }

    fn claim(stored: &Ownership, by: u128, desired: &ManagedTenant) -> Result<(OperatorId, Owner), Conflict> {
        let write = Claim { operator: operator(by), owner: desired.owner };
        let claimed = Ownership::claim(Some(stored), write, desired, NOW)?;
        assert_eq!(claimed.released_at, None);
        Ok((claimed.claim.operator, claimed.claim.owner))
    }

    #[test]
    fn a_released_resource_takes_its_tenant_back_with_a_change_or_after_ten_minutes() {
        let same = desired(owner(1, 3));
        assert_eq!(claim(&released(9), 1, &same), Err(Conflict::Released));
        assert_eq!(claim(&released(10), 1, &same), Ok((operator(1), owner(1, 3))));
        assert_eq!(claim(&released(0), 1, &desired(owner(1, 4))), Ok((operator(1), owner(1, 4))));
    }

    #[test]
    fn another_resource_takes_a_released_tenant_only_by_adoption() {
        let other = desired(owner(2, 1));
        assert_eq!(claim(&released(60), 1, &other), Err(Conflict::TenantExists));
        let adopting = ManagedTenant { adopt: true, ..other };
        assert_eq!(claim(&released(0), 1, &adopting), Ok((operator(1), owner(2, 1))));
    }

    #[test]
    fn another_operator_changes_nothing_unless_it_takes_over() {
        let stored = stored();
        let elsewhere = Conflict::ManagedElsewhere { operator: operator(1) };
        for owner in [owner(1, 9), owner(2, 9)] {
            let adopting = ManagedTenant { adopt: true, ..desired(owner) };
            assert_eq!(claim(&stored, 2, &adopting), Err(elsewhere.clone()));
            assert_eq!(stored.require(&Claim { operator: operator(2), owner }), Err(elsewhere.clone()));
            let third = ManagedTenant { take_over_from: vec![operator(3)], ..adopting.clone() };
            assert_eq!(claim(&stored, 2, &third), Err(elsewhere.clone()));
            let taking = ManagedTenant { take_over_from: vec![operator(3), operator(1)], ..adopting };
            assert_eq!(claim(&stored, 2, &taking), Ok((operator(2), owner)));
        }
    }

    #[test]
    fn operators_that_take_over_from_each_other_do_it_every_ten_minutes() {
        let blue = stored();
        let by_green = ManagedTenant { take_over_from: vec![operator(1)], ..desired(owner(2, 1)) };
        let write = Claim { operator: operator(2), owner: by_green.owner };
        let green = Ownership::claim(Some(&blue), write, &by_green, NOW).unwrap();
        let by_blue = ManagedTenant { take_over_from: vec![operator(2)], ..desired(owner(1, 3)) };
        let elsewhere = Conflict::ManagedElsewhere { operator: operator(2) };
        let after = |minutes| {
            let write = Claim { operator: operator(1), owner: by_blue.owner };
            Ownership::claim(Some(&green), write, &by_blue, NOW + TimeDelta::minutes(minutes))
        };
        assert_eq!(after(9), Err(elsewhere));
        assert_eq!(after(10).unwrap().claim.operator, operator(1));
    }

    #[test]
    fn writes_of_the_owner_are_accepted_in_their_order() {
        let stored = stored();
        assert_eq!(claim(&stored, 1, &desired(owner(1, 2))), Err(Conflict::Stale));
        assert_eq!(claim(&stored, 1, &desired(owner(1, 3))), Ok((operator(1), owner(1, 3))));
        assert_eq!(claim(&stored, 1, &desired(owner(2, 1))), Err(Conflict::NotReleased));
    }
}
