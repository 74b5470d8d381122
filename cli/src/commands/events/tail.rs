//! `svc events tail`: stored and new events of the tenant, one per line.

use std::pin::pin;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use contract::events::StreamedEvent;
use contract::routes;
use futures::StreamExt as _;
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;
use sseer::EventStream;
use tokio::time::{sleep, timeout};
use url::form_urlencoded;

use crate::framework::api::Api;
use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{self, CommandOutput, Streamed, Table};
use crate::framework::since::parse_since;

/// The service sends something at least every 15 seconds. After this time without, the connection is broken.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// Delay before the client connects again. It doubles up to the maximum.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(30);

/// Read events.
///
/// Prints each new event of the tenant on one line until the command is interrupted. Connects again if the connection breaks,
/// and continues after the last event.
#[derive(Args)]
pub(crate) struct Tail {
    /// Type of the events; repeatable [default: all types].
    #[arg(long = "type", value_name = "TYPE")]
    event_types: Vec<String>,
    /// Source of the events [default: all sources].
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Start after the event with this `id` in the output of an earlier run.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Start with the events that were stored at this time, such as 2026-01-31T12:00:00Z, or this long ago, such as 1h.
    #[arg(long, value_name = "TIME", conflicts_with = "after", value_parser = parse_since)]
    since: Option<DateTime<Utc>>,
    /// End after the stored events.
    #[arg(long)]
    no_follow: bool,
}

/// An event with its position.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TailedEvent {
    /// Position of the event, for `--after`.
    id: String,
    #[serde(flatten)]
    event: StreamedEvent,
}

impl CommandOutput for TailedEvent {
    fn table(&self) -> Table {
        let StreamedEvent { received_at, event_type, source_id, event, .. } = &self.event;
        Table::text(&format!("{} {event_type} {source_id} {}", output::timestamp(received_at), event.get()))
    }
}

impl Command for Tail {
    type Output = Streamed<TailedEvent>;

    const ROUTES: Routes = Routes::Only(&[&routes::READ_EVENTS]);
    const ERRORS: Errors = &[];
    const EXAMPLES: Examples = &[
        ("Print new events of two types", "svc events tail --type USER_LOGIN --type USER_LOGOUT"),
        (
            "Print the stored events of a source as JSON",
            "svc events tail --source fw-1 --since 2026-01-31T12:00:00Z --no-follow --output json",
        ),
    ];
    const AGENT_NOTES: &'static str = "Does not end without --no-follow. With --output json, prints one JSON \
        object per line. To continue in another run, pass the id of the last event with --after: no event is \
        lost or repeated. A warning on stderr reports events that are not stored any more.";
    const SEE_ALSO: Names = &["events send"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let mut position = self.after.clone();
        let signal = context.signals().take_first();
        let read = self.read_all(context, &api, &mut position);
        let signal = tokio::select! {
            result = read => return result.map(|()| Streamed::all()),
            signal = signal => signal,
        };
        if let Some(position) = position {
            context.out().notice(&format!("to continue: svc events tail --after {position}"));
        }
        Err(signal.into())
    }
}

impl Tail {
    /// Prints events until the end, and connects again after each response.
    async fn read_all(&self, context: &Context, api: &Api, position: &mut Option<String>) -> Result<()> {
        let mut back_off = FIRST_BACK_OFF;
        let mut was_connected = false;
        loop {
            match self.read(context, api, position, &mut was_connected).await {
                Ok(true) => return Ok(()),
                // The service ended the response, for example at its restart.
                Ok(false) => back_off = FIRST_BACK_OFF,
                Err(error) if !was_connected || !error.retryable => return Err(error),
                Err(error) => {
                    let seconds = back_off.as_secs();
                    context.out().warn(&format!("{}; connecting again in {seconds} s", error.message));
                }
            }
            sleep(back_off).await;
            back_off = (2 * back_off).min(MAX_BACK_OFF);
        }
    }

    /// Prints the events of one response. Returns whether all stored events are printed.
    async fn read(
        &self,
        context: &Context,
        api: &Api,
        position: &mut Option<String>,
        was_connected: &mut bool,
    ) -> Result<bool> {
        let call = api.call_path(Method::GET, &self.path(position.as_deref()));
        let mut events = pin!(EventStream::new(call.stream().await?));
        *was_connected = true;
        loop {
            let Ok(event) = timeout(MAX_SILENCE, events.next()).await else {
                return Err(broken("no data from the service"));
            };
            let Some(event) = event else { return Ok(false) };
            let event = event.map_err(|error| broken(&format!("the connection broke: {error}")))?;
            match &*event.event {
                "udm" => {
                    let stored = serde_json::from_str(&event.data)
                        .map_err(|error| ErrorKind::UnexpectedResponse.with_message(error.to_string()))?;
                    context.out().print_line(&TailedEvent { id: event.id.to_string(), event: stored })?;
                }
                "gap" => context.out().warn("events before the next one are not stored any more"),
                "replaced" => {
                    context
                        .out()
                        .warn("another tenant with fewer streams needed the place; connecting again");
                }
                "end" => return Ok(true),
                _ => {}
            }
            *position = Some(event.id.to_string());
        }
    }

    fn path(&self, position: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for event_type in &self.event_types {
            query.append_pair("event_type", event_type);
        }
        if let Some(source) = &self.source {
            query.append_pair("source_id", source);
        }
        match (position, self.since) {
            (Some(position), _) => {
                query.append_pair("after", position);
            }
            (None, Some(since)) => {
                query.append_pair("since", &since.to_rfc3339());
            }
            (None, None) => {}
        }
        if self.no_follow {
            query.append_pair("follow", "false");
        }
        format!("{}?{}", routes::READ_EVENTS.path, query.finish())
    }
}

/// Error of a connection that broke. Another connection can succeed.
fn broken(message: &str) -> CliError {
    ErrorKind::Unreachable.with_message(message)
}
