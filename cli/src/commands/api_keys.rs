//! `svc api-keys`: API keys of a tenant.

use chrono::{DateTime, Utc};
use clap::Args;
use contract::session::{ApiKey, CreateApiKey};
use contract::{Scope, routes};
use tenancy::KeyId;

use crate::framework::address;
use crate::framework::api::Paging;
use crate::framework::arguments::enum_parser;
use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::{Command, ended, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{
    Cell, CommandOutput, ItemList, Row, Table, id, name, optional, text, time, word,
};

group!(
    /// Manage API keys.
    ApiKeys {
        Create(Create),
        List(List),
        Revoke(Revoke),
    }
);

impl CommandOutput for ApiKey {
    fn table(&self) -> Table {
        Table::fields([
            ("id", Some(text(self.id))),
            ("name", Some(text(&self.name))),
            ("scopes", Some(text(join(&self.scopes)))),
            ("sources", Some(text(sources(self)))),
            ("created by", Some(text(self.created_by))),
            ("expires", Some(time(&self.expires_at))),
            ("key", self.key.as_ref().map(|key| text(key.expose()))),
        ])
    }
}

impl Row for ApiKey {
    const EMPTY: &'static str = "No API keys.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("ID", word(self.id)),
            ("NAME", name(&self.name)),
            ("SCOPES", text(join(&self.scopes))),
            ("EXPIRES", time(&self.expires_at)),
            ("SOURCES", text(sources(self))),
            ("LAST USED", optional(self.last_used_at.as_ref().map(time))),
            ("CREATED BY", id(self.created_by)),
        ]
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Sources that the key may send events for.
fn sources(key: &ApiKey) -> String {
    if key.source_ids.is_empty() { "all".to_owned() } else { join(&key.source_ids) }
}

/// Create an API key.
///
/// The key is shown only once. Programs send it as a bearer token; this client reads it from `SVC_API_KEY`. Requires an
/// administrator who logged in with the password or a passkey in the last ten minutes.
#[derive(Args)]
pub(crate) struct Create {
    /// Display name.
    #[arg(long)]
    name: String,
    /// Scope of the key; repeatable.
    #[arg(long, default_value = "events:write")]
    #[arg(value_parser = enum_parser::<Scope>(Scope::ALL.iter().map(|it| it.as_str())))]
    scope: Vec<Scope>,
    /// Source of the events that the key may send and read; repeatable [default: all sources].
    #[arg(long)]
    source_id: Vec<String>,
    /// Expiry in the form `YYYY-MM-DDTHH:MM:SSZ`, at most 365 days from now [default: 90 days from now].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    expires_at: Option<DateTime<Utc>>,
}

impl Command for Create {
    type Output = ApiKey;

    const ROUTES: Routes = Routes::Only(&[&routes::CREATE_API_KEY]);
    const ERRORS: Errors = &[ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[
        ("Create a key that can send events", "svc api-keys create --name firewalls"),
        (
            "Create a key for two sources",
            "svc api-keys create --name firewalls --source-id fw-1 --source-id fw-2",
        ),
        (
            "Create a key that can invite members",
            "svc api-keys create --name onboarding --scope users:read --scope users:write",
        ),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc api-keys list`. If the key is listed, it exists, and its secret is lost: run `svc \
        api-keys revoke`, then run the command again.",
    );
    const AGENT_NOTES: &'static str = "The output contains a credential that is shown only once: store it \
        in a secret store, never in a log. An API key cannot create API keys; SVC_API_KEY is ignored. Not \
        idempotent: each run creates another key.";
    const SEE_ALSO: Names = &["api-keys list", "api-keys revoke", "events send"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let request = CreateApiKey {
            name: self.name,
            scopes: self.scope,
            expires_at: self.expires_at,
            source_ids: (!self.source_id.is_empty()).then_some(self.source_id),
        };
        let key = api.call(&routes::CREATE_API_KEY, &[]).json(&request)?.fetch().await?;
        context.out().notice("Store the key now: it is not shown again.");
        Ok(key)
    }
}

/// List active API keys.
///
/// Lists the oldest first. Requires a session of an administrator, or the platform token and a tenant.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<ApiKey>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_API_KEYS]);
    const ERRORS: Errors = ErrorKind::PROMPT;
    const EXAMPLES: Examples = &[("List all API keys with the time of last use", "svc api-keys list")];
    const AGENT_NOTES: &'static str =
        "The keys themselves are never listed. The time of last use is accurate to a minute.";
    const SEE_ALSO: Names = &["api-keys create", "api-keys revoke"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        api.print_list(routes::LIST_API_KEYS.path, &[], self.paging).await
    }
}

/// Revoke an API key.
///
/// Requires a session of an administrator, or the platform token and a tenant. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Revoke {
    /// Id of the key, as `svc api-keys list` prints it.
    #[arg(value_name = "KEY_ID")]
    key: KeyId,
}

ended!(
    /// Result of revoking an API key.
    RevokedApiKey {
        /// Id of the key.
        key_id: KeyId,
        revoked,
        /// Name, if it was looked up.
        name
    }: "API key revoked."
);

impl Command for Revoke {
    type Output = RevokedApiKey;

    const ROUTES: Routes = Routes::Only(&[&routes::REVOKE_API_KEY, &routes::LIST_API_KEYS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Revoke an API key after confirmation", "svc api-keys revoke 01890a5d-ac96-774b-bcce-b302099a8057"),
        ("Revoke an API key in a script", "svc api-keys revoke 01890a5d-ac96-774b-bcce-b302099a8057 --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires --yes without a terminal; pass it only if the user asked \
        for this change. Programs that use the key are rejected within seconds. Idempotent.";
    const SEE_ALSO: Names = &["api-keys create", "api-keys list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (api, prompt) = (context.connect(Self::REQUIRES).await?, context.prompt());
        let key = address::resolve::<ApiKey>(self.key, prompt, &api).await?;
        prompt.confirm(&format!("Revoke the API key {key}?")).await?;
        api.call(&routes::REVOKE_API_KEY, &[&key.id]).execute().await?;
        Ok(RevokedApiKey::new(key.id, key.label))
    }
}

fn parse_time(text: &str) -> std::result::Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| time.to_utc())
        .map_err(|_| "expected a time in the form YYYY-MM-DDTHH:MM:SSZ (RFC 3339)".to_owned())
}
