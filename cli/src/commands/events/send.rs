//! `svc events send`

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use contract::ProblemKind;
use schemars::JsonSchema;
use serde::Serialize;
use transport::{HttpTransport, HttpTransportConfig, TransportError};

use super::delivery::{Delivery, Outcome, Pace, read};
use super::input::Source;
use super::progress::Progress;
use super::rejects::{RejectedLine, Rejects, code_of, fault_of};
use crate::blocking::blocking;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{CliError, Exit, Fault, Result};
use crate::output::{Report, Table};

/// Send events: one event, a list, or NDJSON (one event a line).
///
/// An accepted event is held by the stream when this command says so. NDJSON of any length is sent with bounded memory.
///
/// An event with an `event_id` is kept once, however often it is sent within the service's window of two minutes. In a
/// file, an event without one gets an id made of the file's content and its line: sending the same file again gives the
/// same ids. From standard input it gets a random one, so a second run sends new events.
#[derive(Args)]
pub(crate) struct Send {
    /// File of events; `-` reads standard input.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Most events in one request, 1 to 1000.
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    batch_size: usize,
    /// Most requests at once, 1 to 64. Only events within one request keep their order.
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    concurrency: usize,
    /// Record what was not accepted, and why, as NDJSON; each line holds the event as it was sent. Overwrites the file.
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
}

/// What came of a send.
#[derive(Serialize, JsonSchema)]
struct Summary {
    /// Events that were read and tried.
    total: u64,
    /// Events that the stream now holds.
    accepted: u64,
    /// What was not accepted, lines that are no JSON included.
    rejected: u64,
    /// The first line that was not tried, because going on was pointless; null when all were.
    stopped_before_line: Option<u64>,
    /// How long it took.
    seconds: f64,
    /// What was not accepted, and why: at most the first 20, in the order in which they were found.
    first_rejects: Vec<RejectedLine>,
}

impl Report for Summary {
    fn table(&self) -> Table {
        Table::of_fields([
            ("total", Some(self.total.to_string())),
            ("accepted", Some(self.accepted.to_string())),
            ("rejected", Some(self.rejected.to_string())),
            ("stopped before line", self.stopped_before_line.map(|line| line.to_string())),
            ("seconds", Some(format!("{:.1}", self.seconds))),
        ])
    }
}

impl Command for Send {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Events,
            access: Access::Caller,
            examples: &[
                ("Send a file of events", "svc events send --file events.ndjson"),
                (
                    "Send what another program writes, and keep what was refused",
                    "svc events send --file - --rejects rejects.ndjson",
                ),
            ],
            agent_notes: "Safe to repeat for a file within two minutes, or when every event has its own event_id and the \
                          consumers de-duplicate. Exit status 10 means that some events were accepted: send only the \
                          rejects again, as `jq -c .event rejects.ndjson`. The summary on standard output is printed in \
                          any case once sending has begun, and holds the first 20 rejects; --rejects FILE keeps all.",
            see_also: &["events validate", "api"],
            errors: &[
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::EventsInvalid),
                Failure::Local(Fault::PartialSuccess),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::InsufficientScope),
                Failure::Api(ProblemKind::SourceNotAllowed),
                Failure::Api(ProblemKind::QuotaExceeded),
                Failure::Api(ProblemKind::StreamFull),
                Failure::Api(ProblemKind::AckTimeout),
            ],
            input_schema: Some(schema_of::<udm::UdmEvent>),
            output_schema: Some(schema_of::<Summary>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let transport = transport(context)?;
        let recorded = self.rejects.is_some();
        let rejects = Rejects::new(self.rejects.as_deref(), &self.file, context.out())?;
        let pace = Pace { batch_size: self.batch_size, concurrency: self.concurrency };
        let source = blocking(move || Source::open(&self.file)).await?;
        let delivery = Delivery::new(transport, source.ids, pace, rejects, Progress::new(context.out()));
        let mut outcome = delivery.run(read(source)).await;
        let summary = Summary {
            total: outcome.accepted + outcome.rejected,
            accepted: outcome.accepted,
            rejected: outcome.rejected,
            stopped_before_line: outcome.stopped_before,
            seconds: outcome.elapsed.as_secs_f64(),
            first_rejects: std::mem::take(&mut outcome.first_rejects),
        };
        if summary.total > 0 {
            context.out().print(&summary)?;
        }
        verdict(&outcome, recorded)
    }
}

fn transport(context: &Context) -> Result<HttpTransport> {
    let bearer = context.caller()?.bearer;
    let mut transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(bearer),
        timeout_sec: context.timeout().as_secs_f64(),
        ..HttpTransportConfig::new(context.service()?.as_str())
    });
    if let Some(trace) = context.trace() {
        transport = transport.in_trace(trace);
    }
    match context.ca_file()? {
        Some(file) => {
            transport.with_root_certificates(file.pem()).map_err(|error| file.unusable(&error.message))
        }
        None => Ok(transport),
    }
}

/// What is wrong with the events, with advice that the caller can follow: `recorded` says whether --rejects was given.
fn refused(fault: Fault, recorded: bool, message: String) -> CliError {
    let error = fault.because(message);
    if recorded {
        error
    } else {
        error.advising("Run it again with --rejects FILE to keep what was refused.")
    }
}

/// Whether that was a success.
fn verdict(outcome: &Outcome, recorded: bool) -> Result<()> {
    if let Some(broken) = &outcome.broken {
        return Err(broken.clone());
    }
    if outcome.rejected == 0 {
        return match outcome.accepted {
            0 => Err(Fault::InputInvalid.because("the input holds no event")),
            _ => Ok(()),
        };
    }
    if outcome.accepted > 0 {
        let stopped = match outcome.stopped_before {
            Some(line) => format!("; nothing was sent from line {line} on"),
            None => String::new(),
        };
        let counts = format!("{} accepted, {} not accepted{stopped}", outcome.accepted, outcome.rejected);
        let mut error = refused(Fault::PartialSuccess, recorded, counts);
        error.retryable = !outcome.needs_correction;
        return Err(error);
    }
    if let Some(failure) = &outcome.failure {
        return Err(failed(failure));
    }
    let none = format!("none of {} events was accepted", outcome.rejected);
    Err(refused(Fault::EventsInvalid, recorded, none))
}

/// The error for a send that got nowhere.
fn failed(error: &TransportError) -> CliError {
    let kind = error.code.as_deref().and_then(ProblemKind::from_code);
    let fault = fault_of(error);
    CliError {
        code: code_of(error).to_owned(),
        message: error.message.clone(),
        remediation: kind.map_or(fault.remedy(), ProblemKind::remedy).to_owned(),
        exit: match (kind, error.status) {
            (Some(kind), _) => Exit::of_problem(kind),
            (None, Some(status)) => Exit::of_status(status),
            (None, None) => fault.exit(),
        },
        retryable: error.retryable,
        request_id: error.request_id.clone(),
    }
}
