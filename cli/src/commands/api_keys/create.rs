//! `svc api-keys create`

use chrono::{DateTime, Utc};
use clap::Args;
use contract::api_key::{ApiKey, CreateApiKey};
use contract::{ProblemKind, Scope};
use reqwest::Method;

use crate::arguments::word_of;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Create an API key, which is shown only this once.
///
/// A program sends it as a bearer credential, or this client takes it from `SVC_API_KEY`. Needs an administrator's
/// session.
#[derive(Args)]
pub(crate) struct Create {
    /// What people call the key.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// What it may be used for; may be repeated.
    #[arg(long, value_name = "SCOPE", default_value = "events:write", value_parser = word_of::<Scope>(Scope::ALL.iter().map(|it| it.as_str())))]
    scope: Vec<Scope>,
    /// A source that it may send for; may be repeated [default: all sources].
    #[arg(long, value_name = "SOURCE_ID")]
    source_id: Vec<String>,
    /// When it ends, as 2027-01-31T00:00:00Z, at most 365 days from now [default: 90 days from now].
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    expires_at: Option<DateTime<Utc>>,
}

impl Command for Create {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                ("Create a key that sends events", "svc api-keys create --name firewalls"),
                (
                    "Create one for two sources that ends with the year",
                    "svc api-keys create --name firewalls --source-id fw-1 --source-id fw-2 --expires-at 2026-12-31T23:59:59Z",
                ),
                (
                    "Create one for a program that invites members",
                    "svc api-keys create --name onboarding --scope users:read --scope users:write",
                ),
            ],
            agent_notes: "The output holds a credential, shown only this once: put it where secrets are kept, never into a \
                          log. An API key cannot create keys; SVC_API_KEY is not looked at here. Each run makes a further \
                          key.",
            see_also: &["api-keys list", "api-keys revoke", "events send"],
            errors: &[
                Failure::Local(Fault::InputInvalid),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::TooManyApiKeys),
                Failure::Api(ProblemKind::ValidationFailed),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<ApiKey>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let (caller, api) = (context.session()?, context.api()?);
        let create = CreateApiKey {
            name: self.name,
            scopes: self.scope,
            expires_at: self.expires_at,
            source_ids: self.source_id,
        };
        let call = api.call(Method::POST, "/api-keys").bearer(&caller.bearer)?;
        let key: ApiKey = call.tenant(caller.tenant.as_ref()).json(&create)?.fetch().await?;
        context.out().notice("Keep the key now: it is not shown again.");
        context.out().print(&key)
    }
}

fn point_in_time(text: &str) -> std::result::Result<DateTime<Utc>, String> {
    let read = DateTime::parse_from_rfc3339(text);
    read.map(|time| time.to_utc())
        .map_err(|_| "a time is written as 2027-01-31T00:00:00Z (RFC 3339)".to_owned())
}
