//! Recording of audit events, and the policy that decides which personal data they keep.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use database::TenantTx;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::config::Variable;

use crate::AuditEvent;

/// The kind of the outbox messages.
pub(crate) const AUDIT: &str = "audit";

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

/// The outbox message of an event. The function of session's schema that records expired sessions writes the same form.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename = "audit")]
pub(crate) struct Recorded {
    /// Whether the tenant exists. The events of all tenants that do not exist share one subject.
    pub(crate) tenant_exists: bool,
    pub(crate) name: String,
    pub(crate) occurred_at: DateTime<Utc>,
    pub(crate) event: Value,
}

impl AuditLog {
    /// A log with a PII policy.
    pub const fn new(policy: PiiPolicy) -> Self {
        Self { policy }
    }

    /// Records an event of a transaction.
    pub fn record(&self, tx: &mut TenantTx, event: AuditEvent) {
        self.record_unverified(tx, true, event);
    }

    /// Records an event for a tenant that comes from an unverified header and may not exist.
    pub fn record_unverified(&self, tx: &mut TenantTx, tenant_exists: bool, event: AuditEvent) {
        let event = AuditEvent { actor: event.actor.or(Some(tx.actor())), ..self.policy.apply(event) };
        // Plain data always has a JSON form.
        let event = serde_json::to_value(event).unwrap_or_default();
        let name = event["event"].as_str().unwrap_or_default().to_owned();
        let occurred_at = tx.now();
        tx.send(&Recorded { tenant_exists, name, occurred_at, event });
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
