//! The selection of events that a consumer reads, as subjects.

use std::ops::RangeInclusive;

use contract::consumers::Partitions;
use serde::{Deserialize, Serialize};
use tenancy::TenantId;

use crate::subject::{EventSubject, PARTITIONS};

/// Selects events by partition, tenant and type. The default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableFilter {
    /// Partitions; `None` selects all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub partitions: Option<Partitions>,
    /// Tenant; `None` selects all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
    /// Types; an empty list selects all. The subjects also select events of other types that have the subject of `GENERIC_EVENT`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub event_types: Vec<String>,
}

impl DurableFilter {
    /// Returns the subjects of the selected events in a stream with these partitions. The list is empty if the stream has none of
    /// them.
    pub fn subjects(&self, stored: &RangeInclusive<u8>) -> Vec<String> {
        let partitions = self.partitions_in(stored);
        let tenant = self.tenant_id.as_ref().map(TenantId::as_str);
        let ends = match (tenant, self.event_types.as_slice()) {
            // Without a filter, the broker delivers faster than with one that matches all.
            (None, []) if partitions == ["*"] => return vec!["udm.v1.>".to_owned()],
            (None, []) => vec![">".to_owned()],
            (Some(tenant), []) => vec![format!("{tenant}.>")],
            (tenant, types) => {
                let tenant = tenant.unwrap_or("*");
                let types = EventSubject::filter_types(types);
                types.iter().map(|event_type| format!("{tenant}.{event_type}")).collect()
            }
        };
        let of_partition = |partition: &String| {
            ends.iter().map(|end| format!("udm.v1.{partition}.{end}")).collect::<Vec<_>>()
        };
        partitions.iter().flat_map(of_partition).collect()
    }

    /// Returns the tokens of the selected partitions. NATS has no wildcard for a part of a token.
    fn partitions_in(&self, stored: &RangeInclusive<u8>) -> Vec<String> {
        let all = Partitions { first: 0, last: PARTITIONS - 1 };
        let Partitions { first, last } = self.partitions.unwrap_or(all);
        if first <= *stored.start() && *stored.end() <= last {
            return vec!["*".to_owned()];
        }
        let selected = (first..=last).filter(|partition| stored.contains(partition));
        selected.map(|partition| format!("{partition:02}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: RangeInclusive<u8> = 0..=63;

    fn filter(partitions: Option<(u8, u8)>, tenant: Option<&str>, types: &[&str]) -> DurableFilter {
        DurableFilter {
            partitions: partitions.map(|(first, last)| Partitions { first, last }),
            tenant_id: tenant.map(|tenant| tenant.parse().unwrap()),
            event_types: types.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn subjects_name_the_selected_partitions_tenant_and_types() {
        for (filter, subjects) in [
            (filter(None, None, &[]), vec!["udm.v1.>"]),
            (filter(None, Some("acme"), &[]), vec!["udm.v1.*.acme.>"]),
            (
                filter(None, None, &["A", "B"]),
                vec!["udm.v1.*.*.A", "udm.v1.*.*.B", "udm.v1.*.*.GENERIC_EVENT"],
            ),
            (filter(None, None, &["GENERIC_EVENT"]), vec!["udm.v1.*.*.GENERIC_EVENT"]),
            (filter(Some((8, 9)), None, &[]), vec!["udm.v1.08.>", "udm.v1.09.>"]),
            (
                filter(Some((63, 63)), Some("acme"), &["A"]),
                vec!["udm.v1.63.acme.A", "udm.v1.63.acme.GENERIC_EVENT"],
            ),
            (filter(Some((0, 63)), Some("acme"), &[]), vec!["udm.v1.*.acme.>"]),
        ] {
            assert_eq!(filter.subjects(&ALL), subjects);
        }
    }

    #[test]
    fn each_stream_gets_the_selected_partitions_that_it_stores() {
        let filter = filter(Some((14, 31)), Some("acme"), &[]);
        assert_eq!(filter.subjects(&(0..=15)), ["udm.v1.14.acme.>", "udm.v1.15.acme.>"]);
        assert_eq!(filter.subjects(&(16..=31)), ["udm.v1.*.acme.>"]);
        assert!(filter.subjects(&(32..=47)).is_empty());
    }
}
