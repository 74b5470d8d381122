//! The internal APIs of identity, session and ingest for the Kubernetes operator, which manages tenants, producers and consumers. They
//! require the token of the operator's service account.
//!
//! Every request contains the id of the operator ([`OperatorId`]). An operator lists, changes and releases only what it manages, because a
//! resource that it does not find can be in another cluster.
//!
//! Every write contains the uid and the generation of the Kubernetes resource. A service rejects a write of an older generation, so
//! that a delayed write of a former leader changes nothing.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use http::HeaderName;
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, serde_as_text};
use uuid::Uuid;

use crate::consumers::{ConsumerName, CreateConsumer};
use crate::identity::{Delivery, InviteStatus, Quota, SecondFactorPolicy};
use crate::{Secret, TenantStatus};

/// Path of session that lists producers: [`StoredProducers`]. Path prefix of [`producer_path`].
pub const PRODUCERS: &str = "/internal/v1/producers";

/// Path of session that stores and deletes a producer: [`Producer`].
pub fn producer_path(uid: Uuid) -> String {
    format!("{PRODUCERS}/{uid}")
}

/// Path of ingest that lists managed consumers: [`StoredConsumer`]. Path prefix of [`consumer_path`].
pub const CONSUMERS: &str = "/internal/v1/consumers";

/// Path of ingest that stores and deletes a consumer: [`ManagedConsumer`].
pub fn consumer_path(uid: Uuid) -> String {
    format!("{CONSUMERS}/{uid}")
}

/// Path of ingest that replaces the login of a consumer: [`ConsumerReference`].
pub fn login_path(uid: Uuid) -> String {
    format!("{CONSUMERS}/{uid}/login")
}

/// Path of identity that lists managed tenants: [`StoredTenant`]. Path prefix of [`tenant_path`].
pub const TENANTS: &str = "/internal/v1/managed-tenants";

/// Path of identity that creates, changes and releases a managed tenant: [`ManagedTenant`].
pub fn tenant_path(tenant_id: &TenantId) -> String {
    format!("{TENANTS}/{tenant_id}")
}

/// Path of identity that renews the invite of the first administrator: [`Owner`].
pub fn invite_path(tenant_id: &TenantId) -> String {
    format!("{TENANTS}/{tenant_id}/invite")
}

/// Header of every request of an operator: its [`OperatorId`].
pub const X_OPERATOR_ID: HeaderName = HeaderName::from_static("x-operator-id");

/// An operator: a release of the chart in a cluster. Its text form is `<uid of the namespace kube-system>/<namespace>/<release>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId {
    /// `metadata.uid` of the namespace `kube-system`, which identifies the cluster.
    pub cluster: Uuid,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of the release.
    pub release: String,
}

impl fmt::Display for OperatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster, self.namespace, self.release)
    }
}

impl FromStr for OperatorId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(cluster, release)| {
            let ServiceAccount { namespace, name } = release.parse().ok()?;
            Some(Self { cluster: cluster.parse().ok()?, namespace, release: name })
        });
        parsed.ok_or("must be <uid of the namespace kube-system>/NAMESPACE/RELEASE")
    }
}

serde_as_text!(OperatorId);

/// Time after a change of ownership in which it does not change again. After a release, only a newer generation of the same resource
/// is accepted, so that a delayed write of a former leader changes nothing. Two operators that take over from each other do so at most
/// once in this time.
pub const SETTLING_TIME: TimeDelta = TimeDelta::minutes(10);

/// The Kubernetes resource that a write comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// `metadata.uid`.
    pub uid: Uuid,
    /// `metadata.generation`.
    pub generation: i64,
}

/// The last write of a tenant, producer or consumer that an operator manages. It decides which write may follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The operator.
    pub operator: OperatorId,
    /// The resource.
    #[serde(flatten)]
    pub owner: Owner,
}

impl Claim {
    /// Requires a write of the same resource that is not older, or one that takes over from another operator.
    ///
    /// # Errors
    /// [`Conflict::ManagedElsewhere`], [`Conflict::Stale`], or `taken` if another resource of the same operator is the owner.
    pub fn require_next(
        &self,
        write: &Self,
        take_over_from: &[OperatorId],
        taken: Conflict,
    ) -> Result<(), Conflict> {
        self.require_operator(&write.operator, take_over_from)?;
        match self.owner.uid == write.owner.uid {
            true if write.owner.generation < self.owner.generation => Err(Conflict::Stale),
            false if self.operator == write.operator => Err(taken),
            _ => Ok(()),
        }
    }

    /// Requires the same operator, or one that takes over from it.
    ///
    /// # Errors
    /// [`Conflict::ManagedElsewhere`] for another operator.
    pub fn require_operator(&self, by: &OperatorId, take_over_from: &[OperatorId]) -> Result<(), Conflict> {
        if self.operator == *by || take_over_from.contains(&self.operator) {
            return Ok(());
        }
        Err(Conflict::ManagedElsewhere { operator: self.operator.clone() })
    }

    /// Requires that the resource may become the owner again after its release at a time. The release was wrong: the resource exists.
    ///
    /// # Errors
    /// [`Conflict::Released`] for a write that can be a delayed one.
    pub fn require_return(
        &self,
        write: Owner,
        released_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<(), Conflict> {
        let released = self.owner.generation;
        let is_settled = write.generation == released && now >= released_at + SETTLING_TIME;
        if write.generation > released || is_settled { Ok(()) } else { Err(Conflict::Released) }
    }
}

/// The desired state of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedTenant {
    /// The resource. It becomes the owner of a new tenant.
    pub owner: Owner,
    /// Whether it also becomes the owner of an existing tenant without one.
    pub adopt: bool,
    /// The operators of which it takes over the tenant.
    #[serde(default)]
    pub take_over_from: Vec<OperatorId>,
    /// Display name, 1 to 200 characters.
    pub display_name: String,
    /// Status.
    pub status: TenantStatus,
    /// Ingestion limits.
    pub quota: Quota,
    /// Which users must have a second factor.
    #[serde(default)]
    pub second_factor: SecondFactorPolicy,
    /// Minimum number of characters of a new password. `None`: that of the installation.
    #[serde(default)]
    pub password_min_length: Option<u32>,
    /// Whether users can log in with a passkey alone. `None`: yes.
    #[serde(default)]
    pub passkey_login: Option<bool>,
    /// The first administrator, who is invited once.
    pub admin: Option<FirstAdmin>,
}

/// The first administrator of a managed tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstAdmin {
    /// E-mail address.
    pub email: String,
    /// Whether the token is mailed or returned.
    pub delivery: Delivery,
}

/// The result of a write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrittenTenant {
    /// Whether an existing tenant had other values.
    pub changed: bool,
    /// The invite of a new tenant with delivery `response`.
    pub invite: Option<IssuedInvite>,
}

/// A managed tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTenant {
    /// Id of the tenant.
    pub tenant_id: TenantId,
    /// The resource of the last write.
    pub owner: Owner,
    /// Whether the tenant was changed by someone else since the last write.
    pub is_drifted: bool,
    /// The invite, if the operator got its token. `None` if there was no invite, or if it was mailed.
    pub invite: Option<StoredInvite>,
}

/// An invite of the first administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredInvite {
    /// Status. `Revoked` also if someone else sent it again with another token, `Accepted` also if it is deleted.
    pub status: InviteStatus,
    /// End of its term, which identifies the token.
    pub expires_at: DateTime<Utc>,
}

/// The token of an invite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssuedInvite {
    /// E-mail address.
    pub email: String,
    /// The token.
    pub token: Secret,
    /// End of its term.
    pub expires_at: DateTime<Utc>,
}

/// A Kubernetes service account. Its text form is `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceAccount {
    /// Namespace.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ServiceAccount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_name(namespace) && is_dns_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("must be NAMESPACE/NAME"),
        }
    }
}

/// Returns whether a text can be the name of a namespace or a service account: a DNS subdomain (RFC 1123).
pub fn is_dns_name(text: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    (1..=253).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
}

/// A Kubernetes service account that may send events for a tenant. The path contains the uid of the resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// The tenant of the events.
    pub tenant_id: TenantId,
    /// The service account. Its tokens are accepted.
    pub service_account: ServiceAccount,
    /// Allowed `source_id` values, 1 to 100.
    pub source_ids: Vec<String>,
    /// Generation of the resource.
    pub generation: i64,
}

/// A write of a producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedProducer {
    /// The desired state.
    #[serde(flatten)]
    pub producer: Producer,
    /// The operators of which it takes over the service account.
    #[serde(default)]
    pub take_over_from: Vec<OperatorId>,
}

/// Query parameters of the deletion of a producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerDeletion {
    /// The tenant of the producer.
    pub tenant_id: TenantId,
    /// Whether the resource does not exist any more. Then a delayed write does not store it again ([`Claim::require_return`]).
    #[serde(default)]
    pub is_final: bool,
}

/// A stored producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredProducer {
    /// The uid of the resource.
    pub uid: Uuid,
    /// The producer.
    #[serde(flatten)]
    pub producer: Producer,
}

/// A write of a consumer. The path contains the uid of the resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedConsumer {
    /// The desired state. Tenant and start cannot be changed.
    #[serde(flatten)]
    pub consumer: CreateConsumer,
    /// Generation of the resource.
    pub generation: i64,
    /// The operators of which it takes over the consumer.
    #[serde(default)]
    pub take_over_from: Vec<OperatorId>,
}

/// A consumer of a resource: the body of a request for a login, and the query parameters of a deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerReference {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Only of a deletion: whether the resource does not exist any more. Otherwise, the consumer loses its login and keeps its position.
    #[serde(default)]
    pub is_final: bool,
}

/// A stored consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConsumer {
    /// The resource of the last write.
    pub owner: Owner,
    /// What it reads and how.
    #[serde(flatten)]
    pub consumer: CreateConsumer,
    /// Streams that contain it.
    pub streams: Vec<String>,
    /// SHA-256 digest of the password of its login, in hex. `None` if it has no login.
    pub login_digest: Option<String>,
    /// How far it is behind.
    pub lag: ConsumerLag,
}

/// How far a consumer is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerLag {
    /// Events that were not delivered yet.
    pub pending: u64,
    /// Events that were delivered and not acknowledged yet.
    pub ack_pending: u64,
    /// Age of the oldest event that is not acknowledged, in seconds; 0 without such an event.
    pub oldest_unread_seconds: u64,
}

/// The result of a write of a consumer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrittenConsumer {
    /// The consumer.
    pub stored: StoredConsumer,
    /// Its login, if it is new.
    pub login: Option<IssuedLogin>,
}

/// A new login of a consumer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssuedLogin {
    /// Password. The user is the name of the consumer.
    pub password: Secret,
    /// Whether the broker accepts it. If not, the administrator of the broker installs the accounts of consumers.
    pub active: bool,
}

/// Why a write changed nothing: the body of a 409 response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "conflict", rename_all = "snake_case")]
pub enum Conflict {
    /// A newer generation is stored.
    #[error("a newer generation of the resource is stored")]
    Stale,
    /// The resource was released less than [`SETTLING_TIME`] ago, because the operator did not find it.
    #[error("the resource was released in the last {} minutes, because the operator did not find it", SETTLING_TIME.num_minutes())]
    Released,
    /// The tenant does not exist, or session has not received it yet.
    #[error("the tenant does not exist")]
    TenantNotFound,
    /// The tenant exists without an owner, and the resource does not adopt it.
    #[error("a tenant with this id exists and has no owner")]
    TenantExists,
    /// Another operator manages the tenant, or the producer of the service account.
    #[error("the operator {operator} manages it")]
    ManagedElsewhere {
        /// The other operator.
        operator: OperatorId,
    },
    /// Another resource of the same operator owns the tenant. It is released when the operator does not find it any more.
    #[error("an earlier resource with this name is not released yet")]
    NotReleased,
    /// The tenant is deleted. Its id is not used again.
    #[error("the tenant was deleted, and its id is not used again")]
    TenantDeleted,
    /// The invite is accepted, revoked, or sent by someone else.
    #[error("the invite of the first administrator is settled")]
    InviteSettled,
    /// Another producer has the service account.
    #[error("another producer has the service account")]
    ServiceAccountTaken,
    /// A consumer with this name has another owner, or none.
    #[error("a consumer with this name exists and belongs to another owner")]
    ConsumerTaken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_a_namespace_and_a_name() {
        let account: ServiceAccount = "apps/firewall.collector".parse().unwrap();
        assert_eq!(account.to_string(), "apps/firewall.collector");
        for invalid in ["", "apps", "/a", "a/", "a/b/c", "A/b", "a/b_c", "a b/c", "-a/b", "a/b-", "a\nb/c"] {
            assert!(invalid.parse::<ServiceAccount>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn an_operator_is_a_cluster_a_namespace_and_a_release() {
        let text = "018f2e6e-7c1d-7000-8000-000000000002/svc-system/blue";
        let id: OperatorId = text.parse().unwrap();
        assert_eq!((&*id.namespace, &*id.release, id.to_string()), ("svc-system", "blue", text.to_owned()));
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{text}\""));
        for invalid in
            ["", "svc/blue", "018f2e6e/svc/blue", &format!("{text}/more"), &format!("{text} "), &text[..40]]
        {
            assert!(invalid.parse::<OperatorId>().is_err(), "{invalid}");
            assert!(serde_json::from_value::<OperatorId>(invalid.into()).is_err(), "{invalid}");
        }
    }

    fn claim(cluster: u128, uid: u128, generation: i64) -> Claim {
        let operator = format!("{}/svc/svc", Uuid::from_u128(cluster)).parse().unwrap();
        Claim { operator, owner: Owner { uid: Uuid::from_u128(uid), generation } }
    }

    #[test]
    fn writes_of_a_resource_are_accepted_in_their_order() {
        let stored = claim(1, 7, 3);
        let next = |write: &Claim| stored.require_next(write, &[], Conflict::ConsumerTaken);
        assert_eq!(next(&claim(1, 7, 2)), Err(Conflict::Stale));
        assert_eq!(next(&claim(1, 7, 3)), Ok(()));
        assert_eq!(next(&claim(1, 7, 4)), Ok(()));
        assert_eq!(next(&claim(1, 8, 9)), Err(Conflict::ConsumerTaken), "another resource of the operator");
    }

    #[test]
    fn another_operator_changes_nothing_unless_it_takes_over() {
        let stored = claim(1, 7, 3);
        let elsewhere = Conflict::ManagedElsewhere { operator: stored.operator.clone() };
        for write in [claim(2, 7, 2), claim(2, 7, 9), claim(2, 8, 1)] {
            let next = |from: &[OperatorId]| stored.require_next(&write, from, Conflict::NotReleased);
            assert_eq!(next(&[claim(3, 7, 3).operator]), Err(elsewhere.clone()));
            let is_older = write.owner == claim(1, 7, 2).owner;
            let expected = if is_older { Err(Conflict::Stale) } else { Ok(()) };
            assert_eq!(next(std::slice::from_ref(&stored.operator)), expected, "{write:?}");
        }
    }

    #[test]
    fn a_released_resource_returns_with_a_newer_generation_or_later() {
        let at = DateTime::UNIX_EPOCH;
        let returns = |generation, now| claim(1, 7, 3).require_return(claim(1, 7, generation).owner, at, now);
        assert_eq!(returns(3, at + SETTLING_TIME - TimeDelta::seconds(1)), Err(Conflict::Released));
        assert_eq!(returns(3, at + SETTLING_TIME), Ok(()));
        assert_eq!(returns(4, at), Ok(()));
        assert_eq!(returns(2, at + SETTLING_TIME), Err(Conflict::Released), "a delayed write");
    }
}
