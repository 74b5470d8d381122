//! `svc events send`: events from a file or standard input, sent in batches.

mod remedies;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use contract::{ProblemKind, routes};
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use transport::{HttpTransport, HttpTransportConfig, TransportError, TransportErrorKind};

use super::checkpoint::{Checkpoint, Subject};
use super::delivery::{Batches, EventDelivery, SendOutcome};
use super::item::{Place, described};
use super::progress::Progress;
use super::rejects::{
    Reject, RejectLog, RejectedLine, RejectsPath, check_names, error_code, error_message, local_kind,
};
use super::remarks::Remarks;
use super::source::{Input, InputSource};
use crate::framework::api::UNTRUSTED_CERTIFICATE;
use crate::framework::arguments::up_to;
use crate::framework::catalog::{Errors, Examples, Names, OptionSchemas, Routes, SchemaOf, schema_of};
use crate::framework::command::Command;
use crate::framework::configuration::Configuration;
use crate::framework::context::Context;
use crate::framework::credential::Credential;
use crate::framework::credentials::Credentials;
use crate::framework::error::{CliError, ErrorKind, Exit, Result, remediation_for};
use crate::framework::files::Directory;
use crate::framework::input::run_blocking;
use crate::framework::input_file::InputFile;
use crate::framework::output::{CommandOutput, RequestLog, Table, text};

/// Send events.
///
/// Reads JSON objects one after another (NDJSON, or each on several lines), a list, an export of a search of a SIEM, or the rejects
/// of an earlier run, also compressed with gzip or zstd and in UTF-16. Any number of objects is sent with bounded memory; a list or an
/// export can have 256 MiB. An accepted event is stored in the stream.
///
/// Events inside of other objects are sent without them: those of the member `udm`, of search results, of an import body of Google
/// SecOps and of the output of `svc events tail`. Apart from missing ids and sources, the bytes of an event are unchanged.
///
/// Rejects are always kept, with the ids of their events: send only the rejects again. The service stores events with the same
/// `event_id` once within two minutes. In a file, an event without an `event_id` gets an id derived from the content of the file
/// and the number of the event, so that a second run sends the same ids. On standard input it gets a random id, so that a
/// second run sends new events.
///
/// If a request fails, the delivery stops. Standard input cannot be read again: events that were read and not sent are kept with the
/// rejects, and `stopped before` is the line where the part begins that is not kept.
///
/// With --invalid quarantine, the service stores invalid events as dead letters of the tenant, and they count as success: `svc events dlq
/// list _ingest` lists them. Lines that are not JSON objects, and events above 1 MiB, are not sent, and are kept with the rejects.
///
/// With --checkpoint, a run continues where an earlier one ended. If the earlier run was killed while requests had no response,
/// their events and those of later requests are sent again. The service detects them as duplicates for two minutes; later it
/// stores them again, with the same `event_id`.
#[derive(Args)]
pub(crate) struct Send {
    #[command(flatten)]
    input: Input,
    /// Maximum number of events per request, 1 to 1000.
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = up_to(1000_usize))]
    batch_size: usize,
    /// Maximum number of concurrent requests, 1 to 64. Order is kept only within a request.
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = up_to(64_usize))]
    concurrency: usize,
    /// Keep rejects in this file as NDJSON, and overwrite it [default: a new file `<input>.rejects.ndjson` in the current
    /// directory].
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Record in this file which events are settled, and skip those that are. Requires a file as input.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// What the service does with invalid events: rejects them, or stores them as dead letters of the tenant.
    #[arg(long, value_name = "ACTION", value_enum, default_value = "reject")]
    invalid: InvalidEvents,
}

/// What the service does with invalid events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InvalidEvents {
    Reject,
    Quarantine,
}

/// Summary of a delivery, including earlier runs of a checkpoint.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SendSummary {
    /// Sum of accepted, quarantined, rejected and failed.
    total: u64,
    /// Number of events that are stored in the stream.
    accepted: u64,
    /// Part of `accepted`: events that were already stored.
    duplicates: u64,
    /// Number of invalid events that are stored as dead letters of the tenant.
    quarantined: u64,
    /// Number of rejected events and invalid lines.
    rejected: u64,
    /// Number of events of requests that failed, some of which may be stored, and of standard input also those that were read and not
    /// sent after that. They are in the rejects file.
    failed: u64,
    /// Number of events that an earlier run with the checkpoint has settled.
    skipped: u64,
    /// Line of the first event that was not sent and is not in the rejects file; null if no such event exists.
    stopped_before_line: Option<u64>,
    /// Number of this event in the input; null if each line is an event.
    stopped_before_item: Option<u64>,
    /// File with all rejects; null without rejects.
    rejects_file: Option<String>,
    /// Duration of this run in seconds.
    seconds: f64,
    /// The first 20 rejects of this run, in the order of the input.
    first_rejects: Vec<RejectedLine>,
    #[serde(skip)]
    error: Option<CliError>,
}

impl SendSummary {
    fn stopped_before(&self) -> Option<String> {
        self.stopped_before_line.map(|line| described(line, self.stopped_before_item))
    }
}

impl CommandOutput for SendSummary {
    fn table(&self) -> Table {
        let positive = |number: u64| (number > 0).then(|| text(number));
        Table::fields([
            ("total", Some(text(self.total))),
            ("accepted", Some(text(self.accepted))),
            ("of these, duplicates", positive(self.duplicates)),
            ("quarantined", positive(self.quarantined)),
            ("rejected", Some(text(self.rejected))),
            ("failed", positive(self.failed)),
            ("skipped", positive(self.skipped)),
            ("stopped before", self.stopped_before().map(text)),
            ("rejects file", self.rejects_file.as_ref().map(text)),
            ("seconds", Some(text(format!("{:.1}", self.seconds)))),
        ])
    }

    fn error(&self) -> Option<CliError> {
        self.error.clone()
    }
}

/// An event, or a reject.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, clippy::large_enum_variant, reason = "only its schema is used")]
enum InputValue {
    Event(udm::UdmEvent),
    Reject(Reject),
}

impl Command for Send {
    type Output = SendSummary;

    const ROUTES: Routes = Routes::Only(&[&routes::SEND_EVENT, &routes::SEND_EVENTS]);
    const ERRORS: Errors = &[
        ErrorKind::InputUnreadable,
        ErrorKind::InputInvalid,
        ErrorKind::EventsInvalid,
        ErrorKind::PartialSuccess,
    ];
    const EXAMPLES: Examples = &[
        ("Send a file of events", "svc events send --file events.ndjson"),
        ("Send the rejects of an earlier run", "svc events send --file events.ndjson.rejects.ndjson"),
        (
            "Send a large file; repeat the command to continue",
            "svc events send --file events.ndjson --checkpoint events.checkpoint",
        ),
        ("Send the output of another program", "svc events send --file - --rejects rejects.ndjson"),
        (
            "Send an export of a search with events without a source",
            "svc events send --file search.json.gz --source-id chronicle",
        ),
        (
            "Send events, and keep invalid ones in the service",
            "svc events send --file events.ndjson --invalid quarantine",
        ),
    ];
    const AGENT_NOTES: &'static str = "After the first request, always prints the summary to stdout. Exit status 10 means that \
        some events were accepted, whatever the error: do not send the input again, but only the rejects file (`rejects_file` of the \
        summary), after correcting the rejects that are not `retryable`; then the events from `stopped_before_line` \
        on. Of rejects with `truncated`, only the start is kept. With --checkpoint, repeat the same command instead. Repeating a file \
        within two minutes stores nothing twice.";
    const SEE_ALSO: Names = &["events validate", "events schema", "api"];
    const AFTER_LOST_OUTPUT: Option<&'static str> =
        Some("Do not send the input again: every event was accepted or stored as a dead letter.");
    const INPUT_SCHEMA: Option<SchemaOf> = Some(schema_of::<InputValue>);
    const OPTION_SCHEMAS: OptionSchemas = &[("rejects", schema_of::<Reject>)];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let credential = context.credential(Self::REQUIRES)?;
        let source_of_credential = credential.source.clone();
        let mut inputs = files_of_settings(context, &credential)?;
        let any_sent: Arc<AtomicBool> = Arc::default();
        let mut transport = transport(context, credential, Arc::clone(&any_sent))?;
        if self.invalid == InvalidEvents::Quarantine {
            transport = transport.quarantine_invalid();
        }
        let (file, checkpoint) = (self.input.file.clone(), self.checkpoint.clone());
        let service = context.service()?.to_string();
        if file == Path::new("-") {
            context.out().announce_input("events", "Ctrl-D");
        }
        if let (Some(rejects), Some(checkpoint)) = (&self.rejects, &checkpoint) {
            check_names(rejects, checkpoint)?;
        }
        let opened = run_blocking(move || open(&file, checkpoint.as_deref(), service)).await?;
        let (mut source, mut checkpoint) = opened;
        inputs.extend(source.take_file());
        let rejects_path = self.rejects_path(checkpoint.as_ref());
        let rejects = RejectLog::open(rejects_path, self.checkpoint.as_deref(), inputs, context.out())?;
        if let Some(checkpoint) = &mut checkpoint {
            checkpoint.check_writable()?;
        }
        let settled = checkpoint.as_ref().map(|checkpoint| checkpoint.settled().clone()).unwrap_or_default();
        let before = checkpoint.as_ref().map(Checkpoint::counts).unwrap_or_default();
        let has_stable_ids = source.has_stable_ids();
        let progress = Progress::new(context.out(), source.bytes(), before);
        let (source_id, stop) = (self.input.source_id.clone(), Arc::<AtomicBool>::default());
        let (bytes, remarks) = (progress.bytes_read(), Arc::<Mutex<Remarks>>::default());
        let items = source.read(settled.clone(), source_id, bytes, Arc::clone(&stop), Arc::clone(&remarks));
        let batches = Batches::new(items, stop, self.batch_size, has_stable_ids);
        let pipeline = transport.pipeline(self.concurrency);
        let delivery = EventDelivery::new(batches, pipeline, any_sent, checkpoint, rejects, progress);
        let (result, mut rejects) = delivery.run(context.signals().take_first()).await;
        let summary = SendSummary {
            total: result.counts.accepted
                + result.counts.quarantined
                + result.counts.rejected
                + result.failed,
            accepted: result.counts.accepted,
            duplicates: result.counts.duplicates,
            quarantined: result.counts.quarantined,
            rejected: result.counts.rejected,
            failed: result.failed,
            skipped: settled.count(),
            stopped_before_line: result.stopped_before.map(|place| place.line),
            stopped_before_item: result.stopped_before.and_then(Place::item),
            rejects_file: rejects.file().map(|path| path.display().to_string()),
            seconds: result.elapsed.as_secs_f64(),
            first_rejects: rejects.take_first(),
            error: None,
        };
        remarks.lock().print(context.out(), self.input.source_id.as_deref());
        if summary.quarantined > 0 {
            let list = "`svc events dlq list _ingest` lists the quarantined events";
            context.out().notice(list);
        }
        let error = self.exit_result(&result, &summary).err().map(|error| {
            // Another run stores the same events twice if their ids differ, or if the first run was longer ago than the broker remembers
            // ids. With a checkpoint, it sends only those that are not stored.
            let continues = self.checkpoint.is_some() && has_stable_ids;
            let retryable = error.retryable && (continues || summary.rejects_file.is_none());
            CliError { retryable, ..error }.with_credential(&source_of_credential)
        });
        match error {
            // Nothing was sent.
            Some(error)
                if summary.total == 0 && result.request_error.is_none() && result.signal.is_none() =>
            {
                Err(error)
            }
            error => Ok(SendSummary { error, ..summary }),
        }
    }
}

/// Files with the credential and the settings of the command.
fn files_of_settings(context: &Context, credential: &Credential) -> Result<Vec<InputFile>> {
    let directory = Directory::for_current_user().ok();
    let own =
        directory.map(|directory| [directory.path_of::<Credentials>(), directory.path_of::<Configuration>()]);
    let ca_file = context.ca_file_setting()?.map(|setting| setting.value);
    let token_file = credential.source.file().map(Path::to_owned);
    let paths = own.into_iter().flatten().chain(ca_file).chain(token_file);
    Ok(paths.filter_map(|path| InputFile::at(&path)).collect())
}

/// Opens the input, and the checkpoint that belongs to it.
fn open(
    file: &Path,
    checkpoint: Option<&Path>,
    service: String,
) -> Result<(InputSource, Option<Checkpoint>)> {
    let mut source = InputSource::open(file)?;
    let Some(checkpoint) = checkpoint else { return Ok((source, None)) };
    let sha256 = HEXLOWER.encode(&source.digest(file)?);
    let subject = Subject { bytes: source.bytes().unwrap_or_default(), sha256, service };
    Ok((source, Some(Checkpoint::open(checkpoint, subject)?)))
}

fn transport(context: &Context, credential: Credential, any_sent: Arc<AtomicBool>) -> Result<HttpTransport> {
    let out = context.out().clone();
    let mut transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(credential.secret),
        timeout_sec: context.timeout().as_secs_f64(),
        ..HttpTransportConfig::new(context.service()?.as_str())
    })
    .with_total_timeout(context.timeout())
    .on_request(move |log| {
        any_sent.fetch_or(log.is_sent, Ordering::Relaxed);
        out.log_request(&RequestLog {
            method: log.method,
            url: log.url,
            outcome: &log.status.map_or_else(|| "no response".to_owned(), |status| status.to_string()),
            request_id: log.request_id.unwrap_or("unknown"),
            millis: log.elapsed.as_millis(),
        });
    });
    if let Some(file) = credential.source.file() {
        transport = transport.with_token_file(file);
    }
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

impl Send {
    fn rejects_path(&self, checkpoint: Option<&Checkpoint>) -> RejectsPath {
        match (&self.checkpoint, checkpoint) {
            (Some(path), Some(checkpoint)) => {
                let rejects = self.rejects.clone().unwrap_or_else(|| RejectsPath::beside_checkpoint(path));
                RejectsPath::Continued(rejects, checkpoint.rejects_bytes())
            }
            _ => match &self.rejects {
                Some(path) => RejectsPath::Given(path.clone()),
                None => RejectsPath::from_input(&self.input.file),
            },
        }
    }

    /// Converts the result of a delivery to the error of the command, if any.
    fn exit_result(&self, result: &SendOutcome, summary: &SendSummary) -> Result<()> {
        let stored = result.counts.any_stored();
        match (&result.local_error, result.signal) {
            (Some(error), _) if !stored => {
                let is_lost = !result.is_repeatable && result.first_lost.is_some();
                let steps = is_lost.then(|| self.remediation(result, summary));
                return Err(CliError {
                    remediation: steps.unwrap_or_else(|| error.remediation.clone()),
                    ..error.clone()
                });
            }
            (None, Some(signal)) => return Err(signal.into()),
            _ => {}
        }
        let failure = failure_of(result);
        match &failure {
            Some(failed) if !stored && summary.rejected == 0 => {
                return Err(match &summary.rejects_file {
                    Some(_) => failed.clone().with_remediation(self.remediation(result, summary)),
                    None => failed.clone(),
                });
            }
            None if summary.rejected == 0 => {
                let empty = !stored && summary.skipped == 0;
                return if empty {
                    Err(ErrorKind::InputInvalid.with_message("the input contains no events"))
                } else {
                    Ok(())
                };
            }
            _ => {}
        }
        let mut message = if stored {
            let quarantined = match summary.quarantined {
                0 => String::new(),
                number => format!(", {number} quarantined"),
            };
            format!("{} accepted{quarantined}, {} rejected", summary.accepted, summary.rejected)
        } else {
            format!("none of {} events was accepted", summary.total)
        };
        if let Some(error) = &failure {
            let failed =
                if summary.failed > 0 { format!(", {} failed", summary.failed) } else { String::new() };
            let place = summary.stopped_before().map(|place| format!(" before {place}")).unwrap_or_default();
            message = format!("{message}{failed}; stopped{place}: {}", error.message);
        }
        let kind = if stored { ErrorKind::PartialSuccess } else { ErrorKind::EventsInvalid };
        let error = kind.with_message(message).with_remediation(self.remediation(result, summary));
        // Without a failed request, another run would send nothing that this one has not sent.
        let can_continue = failure.is_some_and(|error| error.retryable);
        Err(CliError {
            retryable: can_continue && (self.checkpoint.is_some() || !result.counts.needs_correction),
            ..error
        })
    }
}

/// Error that ended the delivery.
fn failure_of(result: &SendOutcome) -> Option<CliError> {
    result.local_error.clone().or_else(|| result.request_error.as_ref().map(transport_error))
}

/// Error for a request that failed as a whole.
fn transport_error(error: &TransportError) -> CliError {
    let problem = error.code.as_deref().and_then(ProblemKind::from_code);
    let kind = local_kind(error);
    CliError {
        code: error_code(error).to_owned(),
        message: error_message(error).to_owned(),
        remediation: match (problem, error.kind) {
            (Some(problem), _) => remediation_for(problem),
            (None, TransportErrorKind::UntrustedCertificate) => UNTRUSTED_CERTIFICATE,
            (None, _) => kind.remediation(),
        }
        .to_owned(),
        exit: match (problem, &error.code, error.status) {
            (Some(problem), ..) => Exit::from_problem(problem),
            (None, Some(_), Some(status)) => Exit::from_status(status),
            (None, ..) => kind.exit(),
        },
        retryable: error.retryable,
        request_id: error.request_id.clone(),
    }
}
