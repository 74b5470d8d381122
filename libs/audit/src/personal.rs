//! What of a person an audit event keeps: decided before it is written, so that the rest is stored nowhere.

use std::str::FromStr;

use service::config::Variable;

use crate::AuditEvent;

/// What of a person goes into audit events.
pub const AUDIT_PERSONAL: Variable = Variable {
    name: "SVC_AUDIT_PERSONAL",
    form: "`ip`, `email`, `ip,email` or `none`",
    default: Some("ip"),
    secret: false,
    meaning: "What audit events keep of a person beside ids: the client's address, the e-mail address.",
};

/// The value of [`AUDIT_PERSONAL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PiiPolicy {
    ip: bool,
    email: bool,
}

/// The text names something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be `ip`, `email`, `ip,email` or `none`")]
pub struct InvalidPiiPolicy;

impl FromStr for PiiPolicy {
    type Err = InvalidPiiPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPiiPolicy> {
        if text == "none" {
            return Ok(Self::default());
        }
        text.split(',').map(str::trim).try_fold(Self::default(), |kept, word| match word {
            "ip" => Ok(Self { ip: true, ..kept }),
            "email" => Ok(Self { email: true, ..kept }),
            _ => Err(InvalidPiiPolicy),
        })
    }
}

impl PiiPolicy {
    /// The event without what is not to be kept.
    pub(crate) fn keep(self, event: AuditEvent) -> AuditEvent {
        AuditEvent { ip: event.ip.filter(|_| self.ip), email: event.email.filter(|_| self.email), ..event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Actor, EventName};

    #[test]
    fn only_what_the_policy_names_is_kept() {
        let event = AuditEvent {
            ip: Some([192, 0, 2, 1].into()),
            email: Some("ada@example.com".to_owned()),
            ..AuditEvent::new(EventName::AuthnLoginFail, Actor::Anonymous)
        };
        for (policy, ip, email) in
            [("none", false, false), ("ip", true, false), ("email", false, true), ("ip, email", true, true)]
        {
            let kept = policy.parse::<PiiPolicy>().unwrap().keep(event.clone());
            assert_eq!((kept.ip.is_some(), kept.email.is_some()), (ip, email), "{policy}");
        }
        for wrong in ["", "IP", "ip,phone", "none,ip"] {
            assert_eq!(wrong.parse::<PiiPolicy>(), Err(InvalidPiiPolicy), "{wrong}");
        }
    }
}
