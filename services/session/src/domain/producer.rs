//! Stored producers: which operator manages one, and which write of its resource changes it.

use chrono::{DateTime, Utc};
use contract::managed::{Claim, Conflict, ManagedProducer, Producer};

/// The end of the lifetime in introspection results, which need one: a producer does not expire. 9999-12-31.
pub(crate) const EXPIRES_AT: DateTime<Utc> = DateTime::from_timestamp(253_402_214_400, 0).unwrap();

/// A stored producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducerRecord {
    pub(crate) claim: Claim,
    pub(crate) producer: Producer,
    /// When the operator deleted it, because it did not find the resource.
    pub(crate) deleted_at: Option<DateTime<Utc>>,
}

impl ProducerRecord {
    /// Returns whether a write of its resource changes it.
    pub(crate) fn accept(
        &self,
        claim: &Claim,
        write: &ManagedProducer,
        now: DateTime<Utc>,
    ) -> Result<bool, Conflict> {
        if let Some(deleted_at) = self.deleted_at {
            self.claim.require_return(claim.owner, deleted_at, now)?;
            return Ok(true);
        }
        self.claim.require_next(claim, &write.take_over_from, Conflict::NotReleased)?;
        Ok(self.claim != *claim || self.producer != write.producer)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
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

    fn producer(generation: i64) -> Producer {
        Producer {
            tenant_id: "acme".parse().unwrap(),
            service_account: "apps/collector".parse().unwrap(),
            source_ids: vec!["fw-1".to_owned()],
            generation,
        }
    }

    fn write(generation: i64) -> ManagedProducer {
        ManagedProducer { producer: producer(generation), take_over_from: Vec::new() }
    }

    fn claim(by: u128, write: &ManagedProducer) -> Claim {
        let owner = Owner { uid: Uuid::from_u128(7), generation: write.producer.generation };
        Claim { operator: operator(by), owner }
    }

    fn stored() -> ProducerRecord {
        ProducerRecord { claim: claim(1, &write(3)), producer: producer(3), deleted_at: None }
    }

    fn accept(stored: &ProducerRecord, by: u128, write: &ManagedProducer) -> Result<bool, Conflict> {
        stored.accept(&claim(by, write), write, NOW)
    }

    #[test]
    fn writes_are_accepted_in_their_order_and_an_equal_one_changes_nothing() {
        assert_eq!(accept(&stored(), 1, &write(2)), Err(Conflict::Stale));
        assert_eq!(accept(&stored(), 1, &write(3)), Ok(false));
        assert_eq!(accept(&stored(), 1, &write(4)), Ok(true));
    }

    #[test]
    fn a_deleted_producer_returns_with_a_change_or_after_ten_minutes() {
        let deleted =
            |minutes| ProducerRecord { deleted_at: Some(NOW - TimeDelta::minutes(minutes)), ..stored() };
        assert_eq!(accept(&deleted(9), 1, &write(3)), Err(Conflict::Released));
        assert_eq!(accept(&deleted(10), 1, &write(3)), Ok(true));
        assert_eq!(accept(&deleted(0), 1, &write(4)), Ok(true));
    }

    #[test]
    fn another_operator_changes_nothing_unless_it_takes_over() {
        let elsewhere = Conflict::ManagedElsewhere { operator: operator(1) };
        assert_eq!(accept(&stored(), 2, &write(9)), Err(elsewhere));
        let taking = ManagedProducer { take_over_from: vec![operator(1)], ..write(3) };
        assert_eq!(accept(&stored(), 2, &taking), Ok(true));
    }
}
