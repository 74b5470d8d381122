//! The custom resources, group `svc.internal`. The API server validates them by their schemas and CEL rules.

#![expect(unreachable_pub, reason = "the derive macro repeats the structs inside functions")]
#![expect(clippy::duplicated_attributes, reason = "each column of `kubectl get` is an attribute")]

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use contract::consumers::{
    ConsumerStart, MAX_ACK_PENDING, MAX_ACK_WAIT_SECONDS, MAX_EVENT_TYPES, Partitions,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{Expression, Selector, SelectorExt as _};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Group of the resources.
pub(crate) const GROUP: &str = "svc.internal";
/// Finalizer of a tenant that is suspended when its resource is deleted.
pub(crate) const FINALIZER: &str = "svc.internal/suspend";

/// A tenant of the installation. Its name is the tenant id.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "svc.internal",
    version = "v1alpha1",
    kind = "SvcTenant",
    status = "ResourceStatus",
    doc = "A tenant of the installation. Its name is the tenant id.",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')")
        .message("metadata.name is the tenant id: use 1 to 63 characters of a-z, 0-9 and '-', without a leading or trailing hyphen"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.adminEmail) == has(oldSelf.adminEmail) && \
        (!has(self.adminEmail) || self.adminEmail == oldSelf.adminEmail)")
    .message("adminEmail cannot be changed: invite further administrators with `svc users invite`"))]
pub struct TenantSpec {
    /// Display name.
    #[schemars(length(min = 1, max = 200))]
    pub display_name: String,
    /// E-mail address of the first administrator, who is invited when the tenant is created. It cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 254), regex(pattern = r"^[^@\s]+@[^@\s]+$"))]
    pub admin_email: Option<String>,
    /// How the first administrator gets the invite: from a Secret in the namespace of the operator, or by e-mail.
    #[serde(default)]
    pub invite_delivery: InviteDelivery,
    /// A suspended tenant rejects all requests. Suspension ends all sessions.
    #[serde(default)]
    pub state: TenantState,
    /// Limits of ingestion. Without a limit, the default of the installation applies.
    #[serde(default)]
    pub quota: QuotaSpec,
    /// Which users must have a second factor. A user who has none sets one up at the next login.
    #[serde(default)]
    pub second_factor: RequiredFactor,
    /// Minimum number of characters of a new password, at least that of the installation, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 12, max = 128))]
    pub password_min_length: Option<u32>,
    /// Whether users can log in with a passkey alone. If not, a passkey is only a second factor.
    #[serde(default = "enabled")]
    pub passkey_login: bool,
    /// The namespaces, selected by their labels. Their producers may send events of any source for the tenant. Without a selector, no
    /// namespace is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<NamespaceSelector>,
    /// What happens to the tenant when this resource is deleted. Data is never deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Whether the resource takes over a tenant that exists and has no owner.
    #[serde(default)]
    pub adoption: Adoption,
}

const fn enabled() -> bool {
    true
}

/// Delivery of the first invite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InviteDelivery {
    /// A Secret `svc-invite-<tenant>` in the namespace of the operator. It is deleted when the invite is accepted.
    #[default]
    Secret,
    /// An e-mail.
    Email,
}

/// State of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TenantState {
    /// The tenant can be used.
    #[default]
    Active,
    /// The tenant rejects all requests.
    Suspended,
}

/// Which users must have a second factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RequiredFactor {
    /// None.
    #[default]
    Optional,
    /// The administrators.
    Administrators,
    /// All users.
    Everyone,
}

/// What happens to a tenant when its resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The tenant stays as it is, without an owner.
    #[default]
    Retain,
    /// The tenant is suspended.
    Suspend,
}

/// Whether a resource takes over an existing tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Adoption {
    /// Never: the resource is not ready.
    #[default]
    Never,
    /// If no other resource owns it.
    IfUnowned,
}

/// Limits of ingestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaSpec {
    /// Events per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub events_per_second: Option<u32>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub bytes_per_second: Option<u32>,
}

/// A label selector. All requirements must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(has(self.matchLabels) && self.matchLabels.size() > 0) || \
        (has(self.matchExpressions) && self.matchExpressions.size() > 0)")
    .message("allowedNamespaces must not be empty: to allow all namespaces, use matchExpressions with the key \
        kubernetes.io/metadata.name and the operator Exists"))]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)")
    .message("values is required with In and NotIn, and not allowed with Exists and DoesNotExist"))]
pub struct LabelRequirement {
    /// Label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Operator.
    pub operator: LabelOperator,
    /// Values of `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// Operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or does not exist.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

impl NamespaceSelector {
    /// Returns whether it selects a namespace with these labels. Without a requirement, it selects none.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let expressions = self.match_expressions.iter().map(|requirement| {
            let key = requirement.key.clone();
            let values = requirement.values.iter().cloned().collect();
            match requirement.operator {
                LabelOperator::In => Expression::In(key, values),
                LabelOperator::NotIn => Expression::NotIn(key, values),
                LabelOperator::Exists => Expression::Exists(key),
                LabelOperator::DoesNotExist => Expression::DoesNotExist(key),
            }
        });
        let mut selector: Selector = self.match_labels.clone().into_iter().collect();
        selector.extend(expressions);
        !(self.match_labels.is_empty() && self.match_expressions.is_empty()) && selector.matches(labels)
    }
}

/// A Kubernetes service account that sends events for a tenant.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "svc.internal",
    version = "v1alpha1",
    kind = "SvcProducer",
    namespaced,
    status = "ResourceStatus",
    doc = "A Kubernetes service account that sends events for a tenant.",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Service account", type_ = "string", json_path = ".spec.serviceAccount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ProducerSpec {
    /// The tenant of the events. It must allow the namespace. It cannot be changed.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("tenant cannot be changed: delete the producer and create another one"))]
    pub tenant: String,
    /// The service account of the pods, in the namespace of the producer. It cannot be changed.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("serviceAccount cannot be changed: delete the producer and create another one"))]
    pub service_account: String,
    /// The `source_id` values of its events.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 256), regex(pattern = r"\S")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub source_ids: Vec<String>,
}

/// A program that reads the events of a tenant. Its name is that of the durable consumer and of its login.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "svc.internal",
    version = "v1alpha1",
    kind = "SvcConsumer",
    namespaced,
    status = "ConsumerStatus",
    doc = "A program that reads the events of a tenant. Its name is that of the durable consumer and of its login.",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')")
        .message("metadata.name is the name of the consumer: use 1 to 63 characters of a-z, 0-9 and '-', without a leading or \
            trailing hyphen"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.lag.pending"),
    printcolumn(name = "Unread seconds", type_ = "integer", json_path = ".status.lag.oldestUnreadSeconds"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.partitions) == has(oldSelf.partitions) && \
        (!has(self.partitions) || self.partitions == oldSelf.partitions)")
    .message("partitions cannot be changed: delete the consumer and create another one"))]
pub struct ConsumerSpec {
    /// The tenant of the events. It must allow the namespace. It cannot be changed.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("tenant cannot be changed: delete the consumer and create another one"))]
    pub tenant: String,
    /// The event types to read. Without them, all. The consumer also gets events of other types with the subject of `GENERIC_EVENT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_EVENT_TYPES), inner(length(max = 64), regex(pattern = "^[A-Z][A-Z0-9_]*$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub event_types: Vec<String>,
    /// The partitions to read, so that several consumers can share the events. Without it, all. It cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.first <= self.last").message("partitions.first must not be greater than partitions.last"))]
    pub partitions: Option<Partitions>,
    /// The first event to read: `all` stored events, `new` ones only, or those since a time, as in 2026-01-31T12:00:00Z. It cannot be
    /// changed.
    #[serde(default = "all")]
    #[schemars(
        length(max = 40),
        regex(pattern = r"^(all|new|\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2}))$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("start cannot be changed: use `svc consumers reset`, or delete the consumer and create another one"))]
    pub start: String,
    /// Seconds until an event without an acknowledgement is delivered again, 30 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_ACK_WAIT_SECONDS))]
    pub ack_wait_seconds: Option<u32>,
    /// Maximum number of delivered events without an acknowledgement, 1,000 by default. More are not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_ACK_PENDING))]
    pub max_ack_pending: Option<u32>,
}

fn all() -> String {
    ConsumerStart::All.to_string()
}

/// The state of a consumer that the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerStatus {
    /// Generation and conditions.
    #[serde(flatten)]
    pub common: ResourceStatus,
    /// How far the consumer is behind.
    pub lag: Option<Lag>,
}

/// How far a consumer is behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lag {
    /// Events that were not delivered yet.
    pub pending: u64,
    /// Events that were delivered and not acknowledged yet.
    pub ack_pending: u64,
    /// Age of the oldest event that is not acknowledged, in seconds; 0 without such an event.
    pub oldest_unread_seconds: u64,
    /// When the operator wrote these values. It writes changed ones at most once a minute.
    pub measured_at: DateTime<Utc>,
}

/// The state that the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// The generation of the resource that the conditions describe.
    pub observed_generation: Option<i64>,
    /// `Ready`, `Reconciling` and `Stalled`, as kstatus defines them.
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

fn conditions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": { "type": "string", "description": "Ready, Reconciling or Stalled." },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether the condition holds." },
                "reason": { "type": "string", "description": "Why, as one word." },
                "message": { "type": "string", "description": "Why, as a sentence." },
                "observedGeneration": {
                    "type": "integer", "format": "int64",
                    "description": "The generation of the resource that the condition describes.",
                },
                "lastTransitionTime": { "type": "string", "format": "date-time", "description": "Time of the last change of the status." },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use contract::consumers::CreateConsumer;
    use kube::CustomResourceExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// Name in the API and in the resource. The name of a consumer is that of its resource. A resource reads one tenant: what reads all is
    /// created by the platform administrator.
    const DIFFERENT: [(&str, Option<&str>); 3] =
        [("name", None), ("tenant_id", Some("tenant")), ("all_tenants", None)];

    /// The limits of a value in a schema, or in that of one of its alternatives.
    fn limits(schema: &Value) -> Value {
        let alternatives =
            schema["anyOf"].as_array().and_then(|all| all.iter().find(|each| each["type"] != "null"));
        let schema = alternatives.unwrap_or(schema);
        let number = |name: &str| schema[name].as_f64();
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields: Vec<_> = fields.map(|(name, field)| json!([name, limits(field)])).collect();
        json!([number("minimum"), number("maximum"), number("maxItems"), fields])
    }

    #[test]
    fn each_field_of_a_created_consumer_can_be_set_in_a_resource_with_the_same_limits() {
        let settings =
            schemars::generate::SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
        let request = settings.into_generator().into_root_schema_for::<CreateConsumer>().to_value();
        let definition = serde_json::to_value(SvcConsumer::crd()).unwrap();
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let mut expected = Vec::new();
        for (name, field) in request["properties"].as_object().unwrap() {
            let different = DIFFERENT.iter().find(|(different, _)| different == name);
            let words: Vec<_> = name.split('_').collect();
            let upper = |word: &&str| word[..1].to_uppercase() + &word[1..];
            let camel_case = words[0].to_owned() + &words[1..].iter().map(upper).collect::<String>();
            let in_resource = different.map_or(Some(&*camel_case), |(_, in_resource)| *in_resource);
            let Some(in_resource) = in_resource else { continue };
            assert_eq!(limits(&spec[in_resource]), limits(field), "{name}");
            expected.push(in_resource.to_owned());
        }
        expected.sort();
        let mut found: Vec<_> = spec.as_object().unwrap().keys().cloned().collect();
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(spec["partitions"]["required"], json!(["first", "last"]));
    }
}
