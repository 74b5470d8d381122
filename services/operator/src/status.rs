//! Conditions of a resource, as kstatus reads them: `Ready`, `Reconciling` and `Stalled`, with abnormal-true polarity of the last two.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use contract::managed::ConsumerLag;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::core::{ApiResource, ObjectMeta};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::resources::{ConsumerStatus, Lag, ResourceStatus, SvcConsumer, SvcProducer, SvcTenant};

/// Minimum time between two writes of the lag of a consumer: it changes all the time.
const LAG_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// How far a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    /// The stored state is the desired one.
    Ready,
    /// The operator works on it, or tries again.
    Reconciling,
    /// It cannot become ready until a person changes something.
    Stalled,
}

/// Why a resource is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    Provisioned,
    Pending,
    IdentityUnavailable,
    SessionUnavailable,
    IngestUnavailable,
    Invalid,
    TenantExists,
    TenantDeleted,
    ManagedElsewhere,
    Released,
    NamespaceNotAllowed,
    TenantNotFound,
    TenantNotReady,
    ServiceAccountTaken,
    ConsumerTaken,
    SecretTaken,
}

/// The state of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) progress: Progress,
    pub(crate) reason: Reason,
    /// A sentence.
    pub(crate) message: Cow<'static, str>,
}

impl State {
    pub(crate) fn new(progress: Progress, reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { progress, reason, message: message.into() }
    }

    /// The status of a resource in this state. A condition that has not changed keeps its time.
    pub(crate) fn status(
        &self,
        generation: Option<i64>,
        previous: Option<&ResourceStatus>,
    ) -> ResourceStatus {
        let condition = |type_: &str, holds: bool| {
            let status = if holds { "True" } else { "False" };
            let conditions = previous.map(|status| status.conditions.as_slice()).unwrap_or_default();
            let before =
                conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status);
            Condition {
                last_transition_time: before.map_or_else(
                    || Time(Timestamp::now()),
                    |condition| condition.last_transition_time.clone(),
                ),
                message: self.message.to_string(),
                observed_generation: generation,
                reason: format!("{:?}", self.reason),
                status: status.to_owned(),
                type_: type_.to_owned(),
            }
        };
        let conditions = vec![
            condition("Ready", self.progress == Progress::Ready),
            condition("Reconciling", self.progress == Progress::Reconciling),
            condition("Stalled", self.progress == Progress::Stalled),
        ];
        ResourceStatus { observed_generation: generation, conditions }
    }

    /// Returns whether this state causes an event: it is a problem, or the end of one. A new resource that becomes ready causes no event,
    /// because the conditions contain the same, and the events of thousands of new resources would cost more than the other requests.
    pub(crate) fn is_event(&self, before: Option<&ResourceStatus>) -> bool {
        let ready =
            before.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Ready"));
        let reason_before = ready.map(|ready| ready.reason.as_str());
        match self.reason {
            Reason::Pending => false,
            Reason::Provisioned => !matches!(reason_before, None | Some("Pending" | "Provisioned")),
            reason => reason_before != Some(&format!("{reason:?}")),
        }
    }
}

/// A kind of resource.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tenant,
    Producer,
    Consumer,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Tenant, Self::Producer, Self::Consumer];

    /// The kind of the resource.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tenant => "SvcTenant",
            Self::Producer => "SvcProducer",
            Self::Consumer => "SvcConsumer",
        }
    }
}

/// A resource with a status.
#[derive(Clone)]
pub(crate) enum Subject {
    Tenant(Arc<SvcTenant>),
    Producer(Arc<SvcProducer>),
    /// A consumer, and how far it is behind, if the operator knows it.
    Consumer(Arc<SvcConsumer>, Option<ConsumerLag>),
}

impl Subject {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Tenant(_) => Kind::Tenant,
            Self::Producer(_) => Kind::Producer,
            Self::Consumer(..) => Kind::Consumer,
        }
    }

    pub(crate) fn api_resource(&self) -> ApiResource {
        match self {
            Self::Tenant(_) => ApiResource::erase::<SvcTenant>(&()),
            Self::Producer(_) => ApiResource::erase::<SvcProducer>(&()),
            Self::Consumer(..) => ApiResource::erase::<SvcConsumer>(&()),
        }
    }

    /// The resource, as an event refers to it.
    pub(crate) fn reference(&self) -> ObjectReference {
        match self {
            Self::Tenant(tenant) => tenant.object_ref(&()),
            Self::Producer(producer) => producer.object_ref(&()),
            Self::Consumer(consumer, _) => consumer.object_ref(&()),
        }
    }

    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Tenant(tenant) => &tenant.metadata,
            Self::Producer(producer) => &producer.metadata,
            Self::Consumer(consumer, _) => &consumer.metadata,
        }
    }

    /// The status without the lag of a consumer.
    pub(crate) fn status(&self) -> Option<&ResourceStatus> {
        match self {
            Self::Tenant(tenant) => tenant.status.as_ref(),
            Self::Producer(producer) => producer.status.as_ref(),
            Self::Consumer(consumer, _) => consumer.status.as_ref().map(|status| &status.common),
        }
    }

    /// The status in this state.
    pub(crate) fn status_in(&self, state: &State) -> Value {
        let common = state.status(self.metadata().generation, self.status());
        match self {
            Self::Consumer(_, Some(lag)) => {
                json!(ConsumerStatus { common, lag: Some(lag_at(lag, now())) })
            }
            _ => json!(common),
        }
    }

    /// Returns whether the lag differs from that of the status, which was not written in the last minute.
    pub(crate) fn has_new_lag(&self) -> bool {
        let Self::Consumer(consumer, Some(lag)) = self else { return false };
        let written = consumer.status.as_ref().and_then(|status| status.lag.as_ref());
        written.is_none_or(|written| {
            *written != lag_at(lag, written.measured_at) && now() - written.measured_at >= LAG_INTERVAL
        })
    }

    pub(crate) fn uid(&self) -> Option<Uuid> {
        self.metadata().uid.as_ref()?.parse().ok()
    }
}

fn lag_at(lag: &ConsumerLag, measured_at: DateTime<Utc>) -> Lag {
    Lag {
        pending: lag.pending,
        ack_pending: lag.ack_pending,
        oldest_unread_seconds: lag.oldest_unread_seconds,
        measured_at,
    }
}

/// The time of the machine, as conditions have it.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(Timestamp::now().as_second(), 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(status: &'a ResourceStatus, type_: &str) -> &'a Condition {
        status.conditions.iter().find(|condition| condition.type_ == type_).unwrap()
    }

    #[test]
    fn exactly_one_condition_holds() {
        for progress in [Progress::Ready, Progress::Reconciling, Progress::Stalled] {
            let status = State::new(progress, Reason::Pending, "").status(Some(3), None);
            assert_eq!(status.conditions.iter().filter(|condition| condition.status == "True").count(), 1);
            assert_eq!(of(&status, &format!("{progress:?}")).status, "True");
            assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let state = |progress| State::new(progress, Reason::Pending, "");
        let mut first = state(Progress::Ready).status(Some(1), None);
        for condition in &mut first.conditions {
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        let same = state(Progress::Ready).status(Some(2), Some(&first));
        assert_eq!(of(&same, "Ready").last_transition_time, Time(Timestamp::UNIX_EPOCH));
        let changed = state(Progress::Stalled).status(Some(2), Some(&first));
        assert_ne!(of(&changed, "Ready").last_transition_time, Time(Timestamp::UNIX_EPOCH));
        assert_eq!(of(&changed, "Reconciling").last_transition_time, Time(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn problems_and_their_ends_cause_events_but_a_new_resource_that_becomes_ready_does_not() {
        let state = |reason| State::new(Progress::Stalled, reason, "");
        let is_event = |before: Option<Reason>, after| {
            let before = before.map(|reason| state(reason).status(Some(1), None));
            state(after).is_event(before.as_ref())
        };
        for before in [None, Some(Reason::Pending), Some(Reason::Provisioned)] {
            assert!(!is_event(before, Reason::Provisioned), "{before:?}");
            assert!(is_event(before, Reason::Invalid), "{before:?}");
        }
        assert!(is_event(Some(Reason::Invalid), Reason::Provisioned));
        assert!(is_event(Some(Reason::Invalid), Reason::TenantExists));
        assert!(!is_event(Some(Reason::Invalid), Reason::Invalid));
        assert!(!is_event(Some(Reason::Invalid), Reason::Pending));
    }
}
