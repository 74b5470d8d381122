//! The outbox messages of this service in addition to audit events.

use contract::internal::ApiKeyNotice;
use database::outbox::{self, People};
use serde::{Deserialize, Serialize};

/// A message that a use case sends through the outbox. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Message {
    /// Reports a new API key to the identity service, which mails a notice to the administrators of the tenant.
    ReportApiKey { notice: ApiKeyNotice },
}

impl outbox::Message for Message {
    fn erased_with(&self) -> People {
        match self {
            Self::ReportApiKey { .. } => People::none(),
        }
    }
}

/// The kinds of reports to the identity service. They are retried without limit, because an attacker who created a key must not
/// stay unnoticed.
pub(crate) const REPORTS: &[&str] = &["report_api_key"];
