//! `svc events`: events, sent, validated and read, and their schema.

mod checkpoint;
mod delivery;
mod dlq;
mod encoding;
mod input;
mod item;
mod progress;
mod ranges;
mod rejects;
mod remarks;
mod send;
mod source;
mod tail;

use std::sync::Arc;

#[cfg(fuzzing)]
pub use checkpoint::fuzzed as fuzzed_checkpoint;
use clap::Args;
use contract::ProblemKind;
#[cfg(fuzzing)]
pub use input::fuzzed as fuzzed_events;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use udm::ParseError;

use self::input::EventReader;
use self::item::{InputItem, described};
use self::remarks::Remarks;
use self::source::{Input, InputSource};
use crate::framework::catalog::{Errors, Examples, Names, SchemaOf, schema_of};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::input::run_blocking;
use crate::framework::output::{CommandOutput, Table};

group!(
    /// Send, validate and read events.
    Events {
        Send(send::Send),
        Validate(Validate),
        Schema(Schema),
        Tail(tail::Tail),
        /// List, replay and delete events that a consumer could not handle, and quarantined items.
        #[command(subcommand)]
        Dlq(dlq::DeadLetters),
    }
);

/// Maximum number of errors in the output. Further errors are only counted.
const MAX_ERRORS: usize = 100;

/// Validate events without sending them.
///
/// Reads the same input as `svc events send`.
#[derive(Args)]
pub(crate) struct Validate {
    #[command(flatten)]
    input: Input,
}

/// Result of a validation.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct ValidationResult {
    /// Number of events.
    total: u64,
    /// Number of valid events.
    valid: u64,
    /// Number of invalid events.
    invalid: u64,
    /// The first 100 errors.
    errors: Vec<EventError>,
}

/// An error of an event.
#[derive(Serialize, JsonSchema)]
struct EventError {
    /// Line of the input on which the event starts, from 1.
    line: u64,
    /// Number of the event in the input, from 1; null if each line is an event.
    item: Option<u64>,
    /// JSON Pointer (RFC 6901) into the event; empty for the whole event.
    pointer: String,
    /// Error code.
    code: String,
    /// Error message.
    message: String,
}

impl CommandOutput for ValidationResult {
    fn table(&self) -> Table {
        let summary = format!("total {}, valid {}, invalid {}", self.total, self.valid, self.invalid);
        let errors = self.errors.iter().map(|EventError { line, item, pointer, message, .. }| {
            let pointer = if pointer.is_empty() { String::new() } else { format!("{pointer}: ") };
            format!("{}: {pointer}{message}", described(*line, *item))
        });
        Table::message(&std::iter::once(summary).chain(errors).collect::<Vec<_>>().join("\n"))
    }

    fn error(&self) -> Option<CliError> {
        let message = format!("invalid events: {} of {}", self.invalid, self.total);
        let error = ErrorKind::InputInvalid.with_message(message);
        let error = error.with_remediation("Correct the listed events and validate the file again.");
        (self.invalid > 0).then_some(error)
    }
}

impl ValidationResult {
    fn add(&mut self, item: &InputItem) {
        self.total += 1;
        let errors = event_errors(item);
        if errors.is_empty() {
            self.valid += 1;
        } else {
            self.invalid += 1;
        }
        let free = MAX_ERRORS.saturating_sub(self.errors.len());
        self.errors.extend(errors.into_iter().take(free));
    }
}

impl Command for Validate {
    type Output = ValidationResult;

    const ERRORS: Errors = &[ErrorKind::InputUnreadable, ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[("Validate a file of events", "svc events validate --file events.ndjson")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. Always prints the result to stdout; exit status 7 \
        means that an event is invalid.";
    const SEE_ALSO: Names = &["events send"];
    const INPUT_SCHEMA: Option<SchemaOf> = Some(schema_of::<udm::UdmEvent>);

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let Input { file, source_id } = self.input;
        let (source, remarks) = (source_id.clone(), Arc::<Mutex<Remarks>>::default());
        let added = Arc::clone(&remarks);
        let validate = move || {
            let mut result = ValidationResult::default();
            let events = EventReader::new(InputSource::open(&file)?.into_reader(), source_id)?;
            for item in events.with_remarks(added) {
                result.add(&item?);
            }
            Ok(result)
        };
        let result = run_blocking(validate).await?;
        remarks.lock().print(context.out(), source.as_deref());
        if result.total == 0 {
            return Err(ErrorKind::InputInvalid.with_message("the input contains no events"));
        }
        Ok(result)
    }
}

/// Print the JSON Schema of an event.
#[derive(Args)]
pub(crate) struct Schema {}

/// A JSON Schema.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct EventSchema(Value);

impl CommandOutput for EventSchema {
    fn table(&self) -> Table {
        Table::text(&format!("{:#}", self.0))
    }
}

impl Command for Schema {
    type Output = EventSchema;

    const READ_ONLY: bool = true;
    const EXAMPLES: Examples = &[("Print the JSON Schema of an event", "svc events schema")];
    const AGENT_NOTES: &'static str = "Works offline. A server of the same version returns the same schema. \
        `svc events validate` checks more than a JSON Schema can express.";
    const SEE_ALSO: Names = &["events validate", "events send"];

    async fn run(self, _: &Context) -> Result<Self::Output> {
        Ok(EventSchema(udm::schema().to_value()))
    }
}

/// Errors that the service would report for an event.
fn event_errors(item: &InputItem) -> Vec<EventError> {
    let (line, item_number) = (item.place.line, item.place.item());
    let whole_event = |code: &str, message: String| {
        vec![EventError { line, item: item_number, pointer: String::new(), code: code.to_owned(), message }]
    };
    let json = match &item.json {
        Ok(json) => json.get(),
        Err(invalid) => return whole_event(invalid.code, invalid.message.clone()),
    };
    match udm::parse(json.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(error @ ParseError::NotJson(_)) => {
            whole_event(ProblemKind::MalformedJson.code(), error.to_string())
        }
        Err(error @ ParseError::TooLarge) => {
            whole_event(ProblemKind::EventTooLarge.code(), error.to_string())
        }
        Err(ParseError::Invalid { errors, .. }) => errors
            .into_iter()
            .map(|error| EventError {
                line,
                item: item_number,
                pointer: error.pointer,
                code: error.code.into_owned(),
                message: error.message,
            })
            .collect(),
    }
}
