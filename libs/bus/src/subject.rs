//! The subject grammar: the only place that formats and parses subjects.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use tenancy::TenantId;

/// Number of virtual partitions. It never changes, because consumers filter on ranges of partitions.
pub const PARTITIONS: u8 = 64;

const EVENT_PREFIX: &str = "udm.v1";
const AUDIT_PREFIX: &str = "audit.v1";
const ANONYMOUS_AUDIT_PREFIX: &str = "audit.anonymous.v1";
const MAX_EVENT_TYPE: usize = 64;
const MAX_AUDIT_TOKEN: usize = 64;

/// The text is not a subject of this grammar, or a part is not valid in a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid subject")]
pub struct InvalidSubject;

/// Subject of an event: `udm.v1.<part>.<tenant>.<event_type>`.
///
/// It does not contain the source: the memory of the broker grows with the number of subjects, and a tenant has an unlimited
/// number of sources. The partition narrows a filter, and the header `ce-source` contains the source. The types of a tenant are
/// bounded: further ones have the subject of `GENERIC_EVENT`, and the header `ce-type` contains the type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventSubject {
    partition: u8,
    tenant: TenantId,
    event_type: String,
}

/// Returns the partition of a source: the first eight bytes of SHA-256(tenant, zero byte, source) as a big-endian number
/// modulo 64.
pub fn partition(tenant: &TenantId, source_id: &str) -> u8 {
    let mut hasher = Sha256::new();
    hasher.update(tenant.as_str());
    hasher.update([0]);
    hasher.update(source_id);
    // Big-endian mod 64 is the low six bits of the eighth byte.
    hasher.finalize()[7] % PARTITIONS
}

impl EventSubject {
    /// The filter for all events.
    pub const ALL: &str = "udm.v1.>";

    /// The filter for all events of a partition.
    pub fn partition_filter(partition: u8) -> String {
        format!("{EVENT_PREFIX}.{partition:02}.>")
    }

    /// Returns the types that filter the events of these types, or nothing for all events. Events of any type can have the subject of
    /// `GENERIC_EVENT`, so a reader with a filter checks their header `ce-type`.
    pub(crate) fn filter_types(event_types: &[String]) -> Vec<&str> {
        let mut types: Vec<_> = event_types.iter().map(String::as_str).collect();
        if !types.is_empty() {
            types.push(udm::DEFAULT_EVENT_TYPE);
        }
        types.sort_unstable();
        types.dedup();
        types
    }

    /// The filter for the events of a tenant: those of one partition or of all, and of one type or of all.
    pub fn tenant_filter(tenant: &TenantId, partition: Option<u8>, event_type: Option<&str>) -> String {
        let partition = partition.map_or_else(|| "*".to_owned(), |partition| format!("{partition:02}"));
        format!("{EVENT_PREFIX}.{partition}.{tenant}.{}", event_type.unwrap_or("*"))
    }

    /// Returns the event type in a subject of this grammar, or `None` for a subject of another kind.
    pub(crate) fn event_type_in(subject: &str) -> Option<&str> {
        subject.strip_prefix(EVENT_PREFIX)?.rsplit_once('.').map(|(_, event_type)| event_type)
    }

    /// Returns the subject of an event. Fails if the event type does not have the form `[A-Z][A-Z0-9_]{0,63}`.
    pub fn new(tenant: &TenantId, event_type: &str, source_id: &str) -> Result<Self, InvalidSubject> {
        if !is_event_type(event_type) {
            return Err(InvalidSubject);
        }
        Ok(Self {
            partition: partition(tenant, source_id),
            tenant: tenant.clone(),
            event_type: event_type.to_owned(),
        })
    }

    /// The virtual partition, 0 to 63.
    pub fn partition(&self) -> u8 {
        self.partition
    }

    /// The tenant of the event.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The type of the event, or `GENERIC_EVENT`.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }
}

impl fmt::Display for EventSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, tenant, event_type } = self;
        write!(f, "{EVENT_PREFIX}.{partition:02}.{tenant}.{event_type}")
    }
}

impl FromStr for EventSubject {
    type Err = InvalidSubject;

    fn from_str(subject: &str) -> Result<Self, Self::Err> {
        let [partition, tenant, event_type] = tokens(subject, EVENT_PREFIX)?;
        let partition_number: u8 = partition.parse().map_err(|_| InvalidSubject)?;
        let is_valid = partition.len() == 2
            && partition.bytes().all(|byte| byte.is_ascii_digit())
            && partition_number < PARTITIONS
            && is_event_type(event_type);
        if !is_valid {
            return Err(InvalidSubject);
        }
        Ok(Self {
            partition: partition_number,
            tenant: tenant.parse().map_err(|_| InvalidSubject)?,
            event_type: event_type.to_owned(),
        })
    }
}

/// Subject of an audit event: `audit.v1.<tenant>.<context>.<event>`, or `audit.anonymous.v1.<context>.<event>` for an event of no
/// tenant. The second form contains nothing that a client chooses, so that the number of subjects is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuditSubject {
    tenant: Option<TenantId>,
    context: String,
    event: String,
}

impl AuditSubject {
    /// Returns the subject of an audit event. Context and event have 1 to 64 characters of `a-z 0-9 _`.
    pub fn new(tenant: Option<&TenantId>, context: &str, event: &str) -> Result<Self, InvalidSubject> {
        if !is_audit_token(context) || !is_audit_token(event) {
            return Err(InvalidSubject);
        }
        Ok(Self { tenant: tenant.cloned(), context: context.to_owned(), event: event.to_owned() })
    }

    /// The filter for all audit events of a tenant.
    pub fn tenant_filter(tenant: &TenantId) -> String {
        format!("{AUDIT_PREFIX}.{tenant}.>")
    }

    /// The filter for the audit events of one tenant or of all tenants, with one name or any.
    pub(crate) fn filter(tenant: Option<&TenantId>, event: Option<&str>) -> Result<String, InvalidSubject> {
        if !event.is_none_or(is_audit_token) {
            return Err(InvalidSubject);
        }
        let tenant = tenant.map_or("*", TenantId::as_str);
        Ok(format!("{AUDIT_PREFIX}.{tenant}.*.{}", event.unwrap_or("*")))
    }

    /// The affected tenant, if it exists.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The service that recorded the event.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The name of the event.
    pub fn event(&self) -> &str {
        &self.event
    }
}

impl fmt::Display for AuditSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, context, event } = self;
        match tenant {
            Some(tenant) => write!(f, "{AUDIT_PREFIX}.{tenant}.{context}.{event}"),
            None => write!(f, "{ANONYMOUS_AUDIT_PREFIX}.{context}.{event}"),
        }
    }
}

impl FromStr for AuditSubject {
    type Err = InvalidSubject;

    fn from_str(subject: &str) -> Result<Self, Self::Err> {
        if let Ok([context, event]) = tokens(subject, ANONYMOUS_AUDIT_PREFIX) {
            return Self::new(None, context, event);
        }
        let [tenant, context, event] = tokens(subject, AUDIT_PREFIX)?;
        let tenant = tenant.parse().map_err(|_| InvalidSubject)?;
        Self::new(Some(&tenant), context, event)
    }
}

/// Returns the tokens after the prefix. There must be exactly `N`.
fn tokens<'a, const N: usize>(subject: &'a str, prefix: &str) -> Result<[&'a str; N], InvalidSubject> {
    let rest = subject.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')).ok_or(InvalidSubject)?;
    rest.split('.').collect::<Vec<_>>().try_into().map_err(|_| InvalidSubject)
}

/// Returns whether the text is a type of events: 1 to 64 characters of `A-Z 0-9 _` that start with a letter.
pub fn is_event_type(text: &str) -> bool {
    (1..=MAX_EVENT_TYPE).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn is_audit_token(text: &str) -> bool {
    (1..=MAX_AUDIT_TOKEN).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests;
