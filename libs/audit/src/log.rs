//! Recording of audit events, and the policy that decides which personal data they keep.

use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use database::UnitOfWork;
use database::outbox::{self, Fold, People};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::config::Variable;
use service::telemetry::client_address;
use tenancy::UserId;

use crate::AuditEvent;

/// The time in which repeated failures become one record.
const FOLD_TIME: TimeDelta = TimeDelta::minutes(1);

/// The personal data that audit events keep.
pub const AUDIT_PERSONAL: Variable = Variable {
    name: "SVC_AUDIT_PERSONAL",
    form: "`ip`, `email`, `ip,email` or `none`",
    default: Some("ip"),
    secret: false,
    meaning: "Personal data that audit events keep in addition to ids: client address, e-mail address.",
};

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
    fn apply(self, event: AuditEvent) -> AuditEvent {
        AuditEvent { ip: event.ip.filter(|_| self.ip), email: event.email.filter(|_| self.email), ..event }
    }
}

/// Records the audit events of one context.
#[derive(Clone, Copy)]
pub struct AuditLog {
    policy: PiiPolicy,
}

/// The outbox message of an event.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Recorded {
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

impl outbox::Message for Recorded {
    /// An audit event remains in the stream too.
    fn erased_with(&self) -> People {
        People::none()
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) occurred_at: DateTime<Utc>,
    pub(crate) event: Value,
    /// The number of events, if the record represents several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
    /// The source addresses of the events, if the record represents several. Only their number is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<String>,
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

impl AuditLog {
    /// A log with a PII policy.
    pub const fn new(policy: PiiPolicy) -> Self {
        Self { policy }
    }

    /// Records an event of a transaction.
    pub fn record<C>(&self, unit: &mut UnitOfWork<C>, event: AuditEvent) {
        let record = self.prepare(unit, event);
        unit.send(&Recorded::OfTenant(record));
    }

    /// Records the event of a failed attempt. Failures at one account from one source within a minute are one record with their
    /// number, the time of the first, and the details of the first. If there are more than ten sources, those from the eleventh on
    /// are one record.
    pub fn record_failure<C>(&self, unit: &mut UnitOfWork<C>, attempt: FailedAttempt<'_>, event: AuditEvent) {
        let FailedAttempt { tenant_exists, user_id, source } = attempt;
        let record = self.prepare(unit, event);
        let account = user_id.map_or_else(|| "unknown".to_owned(), |user_id| user_id.to_string());
        let key = format!("{}:{}:{account}", record.name, unit.tenant_id());
        let fold = Fold { key, member: source.to_owned(), delay: FOLD_TIME };
        let recorded = if tenant_exists { Recorded::Failure(record) } else { Recorded::Anonymous(record) };
        unit.send_folded(fold, &recorded);
    }

    fn prepare<C>(self, unit: &UnitOfWork<C>, event: AuditEvent) -> Record {
        let actor = event.actor.or(Some(unit.actor()));
        let occurred_at = event.occurred_at.unwrap_or_else(|| unit.now());
        let ip = event.ip.or_else(client_address);
        let event = self.policy.apply(AuditEvent { actor, ip, ..event });
        // Plain data always has a JSON form.
        let event = serde_json::to_value(event).unwrap_or_default();
        let name = event["event"].as_str().unwrap_or_default().to_owned();
        Record { name, occurred_at, event, count: None, members: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventName;

    #[test]
    fn keeps_only_the_personal_data_that_the_policy_names() {
        let event = AuditEvent {
            ip: Some([192, 0, 2, 1].into()),
            email: Some("ada@example.com".to_owned()),
            ..AuditEvent::of(EventName::AuthnLoginFail)
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
