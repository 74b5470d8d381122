//! `svc events send`: events from a file or standard input, sent in batches.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use contract::{ProblemKind, routes};
use schemars::JsonSchema;
use serde::Serialize;
use transport::{HttpTransport, HttpTransportConfig, TransportError};

use super::delivery::{BatchLimits, Delivery, DeliveryResult, Progress, read_source};
use super::input::InputSource;
use super::rejects::{RejectLog, RejectedLine, error_code, error_message, local_kind};
use crate::catalog::{Errors, Examples, Names, Requirement, Routes, SchemaOf, schema_of};
use crate::commands::Command;
use crate::context::{ActiveCredential, Context};
use crate::error::{CliError, ErrorKind, Exit, Result, remediation_for};
use crate::input::run_blocking;
use crate::output::{CommandOutput, Table, text};

/// Send events.
///
/// Reads one event, a list, or NDJSON (one event per line). NDJSON of any length is sent with bounded memory. An accepted
/// event is stored in the stream.
///
/// The service deduplicates events with the same `event_id` for two minutes. In a file, an event without an `event_id` gets an
/// id derived from the content of the file and the line, so that a second run sends the same ids. On standard input it gets
/// a random id, so that a second run sends new events.
#[derive(Args)]
pub(crate) struct Send {
    /// File with events; `-` reads standard input.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Maximum number of events per request, 1 to 1000.
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    batch_size: usize,
    /// Maximum number of concurrent requests, 1 to 64. Order is kept only within a request.
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    concurrency: usize,
    /// Write rejected events and their errors to this file as NDJSON. Overwrites the file.
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
}

/// Summary of a delivery.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SendSummary {
    /// Number of events that were read and sent.
    total: u64,
    /// Number of events stored in the stream.
    accepted: u64,
    /// Number of rejected events and lines.
    rejected: u64,
    /// First line that was not sent because of an error; null if all were sent.
    stopped_before_line: Option<u64>,
    /// Duration in seconds.
    seconds: f64,
    /// The first 20 rejects, in the order in which they occurred.
    first_rejects: Vec<RejectedLine>,
}

impl CommandOutput for SendSummary {
    fn table(&self) -> Table {
        Table::fields([
            ("total", Some(text(self.total))),
            ("accepted", Some(text(self.accepted))),
            ("rejected", Some(text(self.rejected))),
            ("stopped before line", self.stopped_before_line.map(text)),
            ("seconds", Some(text(format!("{:.1}", self.seconds)))),
        ])
    }
}

impl Command for Send {
    type Output = SendSummary;

    const REQUIRES: Requirement = Requirement::Credential;
    const ROUTES: Routes = Routes::Only(&[&routes::SEND_EVENT, &routes::SEND_EVENTS]);
    const ERRORS: Errors = &[
        ErrorKind::InputUnreadable,
        ErrorKind::InputInvalid,
        ErrorKind::EventsInvalid,
        ErrorKind::PartialSuccess,
    ];
    const EXAMPLES: Examples = &[
        ("Send a file of events", "svc events send --file events.ndjson"),
        (
            "Send the output of another program and record rejects",
            "svc events send --file - --rejects rejects.ndjson",
        ),
    ];
    const AGENT_NOTES: &'static str = "Safe to repeat for a file within two minutes, or if every event has \
        its own event_id and consumers deduplicate. Exit status 10 means that some events were accepted: \
        send only the rejects again (`jq -c .event rejects.ndjson`). After the first request, always prints \
        the summary to stdout, with the first 20 rejects; --rejects FILE records all.";
    const SEE_ALSO: Names = &["events validate", "api"];
    const INPUT_SCHEMA: Option<SchemaOf> = Some(schema_of::<udm::UdmEvent>);

    async fn run(self, context: &Context) -> Result<()> {
        let credential = context.credential()?;
        let source_of_credential = credential.bearer.source.clone();
        let transport = transport(context, credential)?;
        let has_rejects_file = self.rejects.is_some();
        let rejects = RejectLog::create(self.rejects.as_deref(), &self.file, context.out())?;
        let limits = BatchLimits { batch_size: self.batch_size, concurrency: self.concurrency };
        let source = run_blocking(move || InputSource::open(&self.file)).await?;
        let delivery = Delivery::new(transport, source.ids, limits, rejects, Progress::new(context.out()));
        let mut result = delivery.run(read_source(source)).await;
        let summary = SendSummary {
            total: result.accepted + result.rejected,
            accepted: result.accepted,
            rejected: result.rejected,
            stopped_before_line: result.stopped_before,
            seconds: result.elapsed.as_secs_f64(),
            first_rejects: std::mem::take(&mut result.first_rejects),
        };
        if summary.total > 0 {
            context.out().print(&summary)?;
        }
        exit_result(&result, has_rejects_file).map_err(|error| error.with_credential(&source_of_credential))
    }
}

fn transport(context: &Context, credential: ActiveCredential) -> Result<HttpTransport> {
    let mut transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(credential.bearer.secret),
        timeout_sec: context.timeout().as_secs_f64(),
        ..HttpTransportConfig::new(context.service()?.as_str())
    });
    if let Some(tenant) = credential.tenant {
        transport = transport.for_tenant(tenant);
    }
    if let Some(trace) = context.trace() {
        transport = transport.in_trace(trace);
    }
    match context.ca_file()? {
        Some(file) => {
            transport.with_root_certificates(file.pem()).map_err(|error| file.invalid(&error.message))
        }
        None => Ok(transport),
    }
}

/// Converts the result of a delivery to the error of the command, if any.
fn exit_result(result: &DeliveryResult, has_rejects_file: bool) -> Result<()> {
    if let Some(error) = &result.local_error {
        return Err(error.clone());
    }
    if result.rejected == 0 {
        return match result.accepted {
            0 => Err(ErrorKind::InputInvalid.with_message("the input contains no events")),
            _ => Ok(()),
        };
    }
    if result.accepted > 0 {
        let stopped = match result.stopped_before {
            Some(line) => format!("; stopped before line {line}"),
            None => String::new(),
        };
        let message = format!("{} accepted, {} rejected{stopped}", result.accepted, result.rejected);
        let mut error = rejects_error(ErrorKind::PartialSuccess, has_rejects_file, message);
        error.retryable = !result.needs_correction;
        return Err(error);
    }
    if let Some(error) = &result.request_error {
        return Err(transport_error(error));
    }
    let message = format!("none of {} events was accepted", result.rejected);
    Err(rejects_error(ErrorKind::EventsInvalid, has_rejects_file, message))
}

/// Error for rejected events. Without a rejects file, the remediation refers to the summary.
fn rejects_error(kind: ErrorKind, has_rejects_file: bool, message: String) -> CliError {
    let error = kind.with_message(message);
    if has_rejects_file {
        error
    } else {
        error.with_remediation(
            "Correct the rejected lines (the JSON summary lists the first 20) and send only those. Pass --rejects FILE to record all rejects.",
        )
    }
}

/// Error for a request that failed as a whole.
fn transport_error(error: &TransportError) -> CliError {
    let problem = error.code.as_deref().and_then(ProblemKind::from_code);
    let kind = local_kind(error);
    CliError {
        code: error_code(error).to_owned(),
        message: error_message(error).to_owned(),
        remediation: problem.map_or(kind.remediation(), remediation_for).to_owned(),
        exit: match (problem, error.status) {
            (Some(problem), _) => Exit::from_problem(problem),
            (None, Some(status)) => Exit::from_status(status),
            (None, None) => kind.exit(),
        },
        retryable: error.retryable,
        request_id: error.request_id.clone(),
    }
}
