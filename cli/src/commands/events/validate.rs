//! `svc events validate`

use std::path::PathBuf;

use clap::Args;
use contract::ProblemKind;
use schemars::JsonSchema;
use serde::Serialize;
use udm::Invalid;

use super::input::{Item, Items, Source};
use crate::blocking::blocking;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Report, Table};

/// Faults that are told; what has more is counted.
const TOLD: usize = 100;

/// Check events as the service would, without sending them.
#[derive(Args)]
pub(crate) struct Validate {
    /// File of events: one event, a list, or NDJSON; `-` reads standard input.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
}

/// What was found.
#[derive(Default, Serialize, JsonSchema)]
struct Findings {
    /// Events that were read.
    total: u64,
    /// Events that the service would accept.
    valid: u64,
    /// Events that it would refuse.
    invalid: u64,
    /// What is wrong, at most the first 100 faults.
    faults: Vec<EventFault>,
}

/// A fault of an event.
#[derive(Serialize, JsonSchema)]
struct EventFault {
    /// Its line, or its place in the list, from 1.
    line: u64,
    /// Where in the event, as a JSON Pointer (RFC 6901); empty for the whole event.
    pointer: String,
    /// What kind of fault.
    code: String,
    /// The fault in words.
    message: String,
}

impl Report for Findings {
    fn table(&self) -> Table {
        let told =
            self.faults.iter().map(|EventFault { line, pointer, message, .. }| match pointer.as_str() {
                "" => format!("line {line}: {message}"),
                pointer => format!("line {line}: {pointer}: {message}"),
            });
        let summary = format!("{} events, {} valid, {} invalid", self.total, self.valid, self.invalid);
        let text = std::iter::once(summary).chain(told).collect::<Vec<_>>().join("\n");
        Table::of_text(&text)
    }
}

impl Findings {
    fn add(&mut self, item: &Item) {
        self.total += 1;
        let faults = faults(item);
        if faults.is_empty() {
            self.valid += 1;
        } else {
            self.invalid += 1;
        }
        let room = TOLD.saturating_sub(self.faults.len());
        self.faults.extend(faults.into_iter().take(room));
    }
}

impl Command for Validate {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Events,
            access: Access::Offline,
            examples: &[("Check a file of events", "svc events validate --file events.ndjson")],
            agent_notes: "Works offline. The findings are on standard output in any case; exit status 7 means that at least \
                          one event is not valid.",
            see_also: &["events send"],
            errors: &[Failure::Local(Fault::InputUnreadable), Failure::Local(Fault::InputInvalid)],
            input_schema: Some(schema_of::<udm::UdmEvent>),
            output_schema: Some(schema_of::<Findings>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let find = move || {
            let mut findings = Findings::default();
            for item in Items::of(Source::open(&self.file)?.reader)? {
                findings.add(&item.map_err(|error| Fault::InputUnreadable.because(error.to_string()))?);
            }
            Ok(findings)
        };
        let findings = blocking(find).await?;
        if findings.total == 0 {
            return Err(Fault::InputInvalid.because("the input holds no event"));
        }
        context.out().print(&findings)?;
        match findings.invalid {
            0 => Ok(()),
            invalid => {
                Err(Fault::InputInvalid
                    .because(format!("{invalid} of {} events are not valid", findings.total)))
            }
        }
    }
}

fn faults(item: &Item) -> Vec<EventFault> {
    let line = item.line;
    let whole = |code: &str, message: String| {
        vec![EventFault { line, pointer: String::new(), code: code.to_owned(), message }]
    };
    let json = match &item.json {
        Ok(json) => json.get(),
        Err(flaw) => return whole(flaw.code, flaw.message.clone()),
    };
    match udm::parse(json.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(invalid @ Invalid::NotJson(_)) => whole(ProblemKind::MalformedJson.code(), invalid.to_string()),
        Err(invalid @ Invalid::TooLarge) => whole(ProblemKind::EventTooLarge.code(), invalid.to_string()),
        Err(Invalid::WrongShape { faults, .. }) => faults
            .into_iter()
            .map(|fault| EventFault {
                line,
                pointer: fault.pointer,
                code: fault.code.into_owned(),
                message: fault.message,
            })
            .collect(),
    }
}
