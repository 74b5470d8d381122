//! Recording of audit events in the transaction of the change, and the policy that decides which personal data they keep. `libs/audit`
//! publishes them.

mod event;

use std::net::IpAddr;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::config::Variable;
use service::telemetry::client_address;
use tenancy::{Actor, TenantId, UserId};

use crate::outbox::{Fold, Message, People, WhenFull};

pub use contract::audit::EventName;
pub use event::AuditEvent;

/// The time in which repeated failures become one record.
const FOLD_TIME: TimeDelta = TimeDelta::minutes(1);

/// The personal data that audit events keep.
pub const AUDIT_PERSONAL: Variable =
    Variable::new("SVC_AUDIT_PERSONAL", "`ip`, `email`, `ip,email` or `none`")
        .default("ip")
        .meaning("Personal data that audit events keep in addition to ids: client address, e-mail address.");

/// The value of [`AUDIT_PERSONAL`]. It applies before an event is written, so that excluded data is not stored anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PiiPolicy {
    ip: bool,
    email: bool,
}

/// The text is not a PII policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be `ip`, `email`, `ip,email` or `none`")]
pub struct InvalidPiiPolicy;

impl FromStr for PiiPolicy {
    type Err = InvalidPiiPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPiiPolicy> {
        if text == "none" {
            return Ok(Self::default());
        }
        text.split(',').map(str::trim).try_fold(Self::default(), |policy, word| match word {
            "ip" => Ok(Self { ip: true, ..policy }),
            "email" => Ok(Self { email: true, ..policy }),
            _ => Err(InvalidPiiPolicy),
        })
    }
}

impl PiiPolicy {
    /// Returns the record of an event, without the data that the policy excludes.
    pub(crate) fn record(self, event: AuditEvent, actor: Actor, now: DateTime<Utc>) -> Record {
        let (actor, ip) = (event.actor.or(Some(actor)), event.ip.or_else(client_address));
        let occurred_at = event.occurred_at.unwrap_or(now);
        let is_always_recorded =
            event.is_always_recorded || matches!(actor, Some(Actor::PlatformAdmin | Actor::System));
        let event = self.apply(AuditEvent { actor, ip, ..event });
        // Plain data always has a JSON form.
        let event = serde_json::to_value(event).unwrap_or_default();
        let name = event["event"].as_str().unwrap_or_default().to_owned();
        Record { name, occurred_at, event, count: None, members: Vec::new(), is_always_recorded }
    }

    /// Returns the address of the client of the request, if events keep it.
    pub(crate) fn kept_address(self) -> Option<IpAddr> {
        client_address().filter(|_| self.ip)
    }

    fn apply(self, event: AuditEvent) -> AuditEvent {
        AuditEvent { ip: event.ip.filter(|_| self.ip), email: event.email.filter(|_| self.email), ..event }
    }
}

/// The outbox message of an event.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Recorded {
    /// An event of a tenant.
    #[serde(rename = "audit")]
    OfTenant(Record),
    /// A failed attempt of an unauthenticated client at an account of a tenant.
    #[serde(rename = "audit_failure")]
    Failure(Record),
    /// An event of a tenant that does not exist.
    #[serde(rename = "audit_anonymous")]
    Anonymous(Record),
}

impl Message for Recorded {
    /// An audit event remains in the stream too.
    fn erased_with(&self) -> People {
        People::none()
    }

    /// Unauthenticated clients cause failures, so they must not block the changes of a tenant. The stream of anonymous events loses
    /// events too when it is full.
    fn when_full(&self) -> WhenFull {
        match self {
            Self::OfTenant(Record { is_always_recorded: true, .. }) => WhenFull::Accept,
            Self::OfTenant(_) => WhenFull::Reject,
            Self::Failure(_) => WhenFull::Fold,
            Self::Anonymous(_) => WhenFull::Drop,
        }
    }
}

#[derive(Serialize, Deserialize)]
/// An event as it is stored until it is published.
pub struct Record {
    /// The name of the event.
    pub name: String,
    /// When it happened.
    pub occurred_at: DateTime<Utc>,
    /// The fields of the event.
    pub event: Value,
    /// The number of events, if the record represents several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The source addresses of the events, if the record represents several. Only their number is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// See [`AuditEvent::is_always_recorded`].
    #[serde(skip)]
    is_always_recorded: bool,
}

/// A failed attempt at a password, with a tenant from an unverified header.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// Whether the tenant exists.
    pub tenant_exists: bool,
    /// The account, if it exists. All accounts that do not exist count as one, because a client can name any number of them.
    pub user_id: Option<UserId>,
    /// The source address of the attempt, as rate limits count it.
    pub source: &'a str,
}

impl FailedAttempt<'_> {
    /// Returns the message of a failure, and what it is folded with: failures at one account from one source within a minute are one
    /// record with their number, the time of the first, and the details of the first. If there are more than ten sources, those from the
    /// eleventh on are one record.
    pub(crate) fn message(self, tenant_id: &TenantId, record: Record) -> (Fold, Recorded) {
        let account = self.user_id.map_or_else(|| "unknown".to_owned(), |user_id| user_id.to_string());
        let key = format!("{}:{tenant_id}:{account}", record.name);
        let recorded = if self.tenant_exists { Recorded::Failure } else { Recorded::Anonymous };
        (Fold { key, member: self.source.to_owned(), delay: FOLD_TIME }, recorded(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_personal_data_that_the_policy_names() {
        let event = AuditEvent {
            ip: Some([192, 0, 2, 1].into()),
            email: Some("ada@example.com".to_owned()),
            ..AuditEvent::new(EventName::AuthnLoginFail)
        };
        for (policy, ip, email) in
            [("none", false, false), ("ip", true, false), ("email", false, true), ("ip, email", true, true)]
        {
            let kept = policy.parse::<PiiPolicy>().unwrap().apply(event.clone());
            assert_eq!((kept.ip.is_some(), kept.email.is_some()), (ip, email), "{policy}");
        }
        for invalid in ["", "IP", "ip,phone", "none,ip"] {
            assert_eq!(invalid.parse::<PiiPolicy>(), Err(InvalidPiiPolicy), "{invalid}");
        }
    }
}
