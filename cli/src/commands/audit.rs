//! `svc audit`: audit events of the tenant, or of all tenants for the platform administrator.

use chrono::{DateTime, Utc};
use clap::Args;
use contract::audit::{AuditRecord, EventName};
use contract::routes;
use tenancy::{Actor, KeyId};

use crate::framework::address::UserRef;
use crate::framework::api::Paging;
use crate::framework::arguments::{AllTenants, enum_parser};
use crate::framework::catalog::{Examples, Names, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::Result;
use crate::framework::output::{Cell, ItemList, Row, address, id, optional, text, time, word};
use crate::framework::since::parse_since;

group!(
    /// Read audit events.
    Audit {
        List(List),
    }
);

/// List audit events.
///
/// Lists the oldest first. An administrator gets the events of the tenant, a member those that the member caused or is affected
/// by. With the platform token, lists those of the tenant of --tenant or the context, else of all tenants.
#[derive(Args)]
pub(crate) struct List {
    /// Name of the event [default: all].
    #[arg(long, value_name = "EVENT", value_parser = enum_parser::<EventName>(EventName::ALL.iter().map(|it| it.as_str())))]
    kind: Option<EventName>,
    /// User who is affected or who caused the event, by e-mail address or id [default: all].
    #[arg(long, value_name = "USER")]
    user_id: Option<UserRef>,
    /// Id of the API key that is affected or that caused the event [default: all].
    #[arg(long)]
    key_id: Option<KeyId>,
    /// Start with events stored at this time, such as 2026-01-31T12:00:00Z, or this long ago, such as 7d.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_since)]
    since: DateTime<Utc>,
    /// Start after the event with this `position`. Ignores --since.
    #[arg(long, value_name = "POSITION")]
    after: Option<String>,
    #[command(flatten)]
    all_tenants: AllTenants,
    #[command(flatten)]
    paging: Paging,
}

/// The columns are limited to fit a terminal; JSON output has all fields.
impl Row for AuditRecord {
    const EMPTY: &'static str = "No audit events.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        let event = match self.count {
            Some(count) if count > 1 => format!("{} ×{count}", self.event),
            _ => self.event.clone(),
        };
        let actor = match self.actor {
            Actor::User { user_id } => id(user_id),
            Actor::ApiKey { key_id } => id(key_id),
            Actor::PlatformAdmin => text("platform"),
            Actor::Anonymous => text("anonymous"),
            Actor::System => text("system"),
        };
        vec![
            ("TIME", time(&self.occurred_at)),
            ("TENANT", text(&self.tenant_id)),
            ("EVENT", word(event)),
            ("ACTOR", actor),
            ("OBJECT", optional(object(self))),
            ("ADDRESS", optional(self.ip.map(address))),
            ("ABOUT", optional(self.about.as_ref().map(text))),
        ]
    }

    fn next_options(&self) -> Option<String> {
        Some(format!("--after {}", self.position))
    }
}

/// The most specific affected object.
fn object(record: &AuditRecord) -> Option<Cell> {
    let AuditRecord { key_id, session_id, invite_id, user_id, consumer, .. } = record;
    let ids = key_id.map(id).or(session_id.map(id)).or(invite_id.map(id)).or(user_id.map(id));
    ids.or(consumer.as_ref().map(text))
}

impl Command for List {
    type Output = ItemList<AuditRecord>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_AUDIT, &routes::LIST_USERS, &routes::GET_TENANT]);
    const EXAMPLES: Examples = &[
        ("List the events of the last 24 hours", "svc audit list"),
        ("List failed logins of the last week", "svc audit list --kind authn_login_fail --since 7d"),
        ("List the events of an API key", "svc audit list --key-id 01890a5d-ac96-774b-bcce-b302099a8057"),
        ("Save all stored events", "svc audit list --since 400d --output ndjson"),
    ];
    const AGENT_NOTES: &'static str = "Requires a session or the platform token; API keys are rejected. A member gets only \
        events that the member caused or is affected by. To collect events \
        regularly, pass the `position` of the last \
        one with --after. An event can occur twice with the same id.";
    const SEE_ALSO: Names = &["users list", "auth sessions list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tenants = context.connect_to_tenants(Self::REQUIRES, self.all_tenants)?;
        let since = self.since.to_rfc3339();
        let user = match &self.user_id {
            Some(user) => Some(user.id(&tenants.api).await?.to_string()),
            None => None,
        };
        let key = self.key_id.map(|key| key.to_string());
        let filter = [
            ("kind", self.kind.map(EventName::as_str)),
            ("user_id", user.as_deref()),
            ("key_id", key.as_deref()),
            ("since", Some(&*since).filter(|_| self.after.is_none())),
            ("after", self.after.as_deref()),
        ];
        tenants.print_list(routes::LIST_AUDIT.path, &filter, self.paging).await
    }
}
