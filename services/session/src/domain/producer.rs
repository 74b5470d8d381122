//! Stored producers: which operator manages one, and which write of its resource changes it.

use chrono::{DateTime, Utc};
use contract::managed::{Conflict, ManagedProducer, OperatorId, Producer, may_return};

/// The end of the lifetime in introspection results, which need one: a producer does not expire. 9999-12-31.
pub(crate) const EXPIRES_AT: DateTime<Utc> = DateTime::from_timestamp(253_402_214_400, 0).unwrap();

/// A stored producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducerRecord {
    pub(crate) operator: OperatorId,
    pub(crate) producer: Producer,
    /// When the operator deleted it, because it did not find the resource.
    pub(crate) deleted_at: Option<DateTime<Utc>>,
}

impl ProducerRecord {
    /// Returns whether a write of its resource changes it.
    pub(crate) fn accept(
        &self,
        by: &OperatorId,
        write: &ManagedProducer,
        now: DateTime<Utc>,
    ) -> Result<bool, Conflict> {
        let (generation, stored) = (write.producer.generation, self.producer.generation);
        match self.deleted_at {
            Some(deleted_at) if may_return(generation, stored, deleted_at, now) => Ok(true),
            Some(_) => Err(Conflict::Released),
            None => {
                self.require(by, &write.take_over_from)?;
                if generation < stored {
                    return Err(Conflict::Stale);
                }
                Ok(self.operator != *by || self.producer != write.producer)
            }
        }
    }

    /// Requires that an operator manages it, or takes it over.
    pub(crate) fn require(&self, by: &OperatorId, take_over_from: &[OperatorId]) -> Result<(), Conflict> {
        if self.operator == *by || take_over_from.contains(&self.operator) {
            Ok(())
        } else {
            Err(Conflict::ManagedElsewhere { operator: self.operator.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
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

    fn stored() -> ProducerRecord {
        ProducerRecord { operator: operator(1), producer: producer(3), deleted_at: None }
    }

    #[test]
    fn writes_are_accepted_in_their_order_and_an_equal_one_changes_nothing() {
        assert_eq!(stored().accept(&operator(1), &write(2), NOW), Err(Conflict::Stale));
        assert_eq!(stored().accept(&operator(1), &write(3), NOW), Ok(false));
        assert_eq!(stored().accept(&operator(1), &write(4), NOW), Ok(true));
    }

    #[test]
    fn a_deleted_producer_returns_with_a_change_or_after_ten_minutes() {
        let deleted =
            |minutes| ProducerRecord { deleted_at: Some(NOW - TimeDelta::minutes(minutes)), ..stored() };
        assert_eq!(deleted(9).accept(&operator(1), &write(3), NOW), Err(Conflict::Released));
        assert_eq!(deleted(10).accept(&operator(1), &write(3), NOW), Ok(true));
        assert_eq!(deleted(0).accept(&operator(1), &write(4), NOW), Ok(true));
    }

    #[test]
    fn another_operator_changes_nothing_unless_it_takes_over() {
        let elsewhere = Conflict::ManagedElsewhere { operator: operator(1) };
        assert_eq!(stored().accept(&operator(2), &write(9), NOW), Err(elsewhere));
        let taking = ManagedProducer { take_over_from: vec![operator(1)], ..write(3) };
        assert_eq!(stored().accept(&operator(2), &taking, NOW), Ok(true));
    }
}
