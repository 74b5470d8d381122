//! The two streams: data on standard output in the format that was asked for, everything else on standard error.

mod table;
mod text;

use std::io::{self, IsTerminal, Write};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use table::{Listed, Row, Table};
pub(crate) use text::{clean, minute, time};

use crate::arguments::{Color, Format, Globals};
use crate::environment;
use crate::error::{CliError, Fault, Result};

/// What a command prints as its data. The JSON is the type itself, and the catalog's `output_schema` is its schema.
pub(crate) trait Report: Serialize + JsonSchema {
    /// The data for people.
    fn table(&self) -> Table;

    /// The data as lines of NDJSON: one, unless it is a list.
    fn lines(&self) -> serde_json::Result<Vec<Value>> {
        Ok(vec![serde_json::to_value(self)?])
    }
}

/// Where and how a command speaks.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    format: Format,
    quiet: bool,
    verbose: bool,
    colored: bool,
}

impl Output {
    /// The output that the options ask for.
    pub(crate) fn new(globals: &Globals) -> Self {
        Self {
            format: globals.output,
            quiet: globals.quiet,
            verbose: globals.verbose,
            colored: colors(globals.color),
        }
    }

    /// The output for an error that comes before the options are understood.
    pub(crate) fn before_parsing(format: Format, color: Color) -> Self {
        Self { format, quiet: false, verbose: false, colored: colors(color) }
    }

    /// Whether messages are JSON.
    pub(crate) fn is_structured(&self) -> bool {
        self.format != Format::Table
    }

    /// Whether progress may be painted on standard error.
    pub(crate) fn paints_progress(&self) -> bool {
        !self.quiet && !self.is_structured() && io::stderr().is_terminal()
    }

    /// Prints what came out.
    pub(crate) fn print(&self, report: &impl Report) -> Result<()> {
        let defect =
            |error: serde_json::Error| Fault::Defect.because(format!("the output is no JSON: {error}"));
        let text = match self.format {
            Format::Table => return write_out(&report.table().to_string()),
            Format::Json => serde_json::to_string_pretty(report).map_err(defect)? + "\n",
            Format::Ndjson => report
                .lines()
                .map_err(defect)?
                .iter()
                .map(Value::to_string)
                .fold(String::new(), |text, line| text + &line + "\n"),
        };
        if io::stdout().is_terminal() { write_out(&text::clean_json(&text)) } else { write_out(&text) }
    }

    /// Tells a person what is going on; left out with `--quiet`, and where messages are JSON.
    pub(crate) fn notice(&self, text: &str) {
        if !self.quiet && !self.is_structured() {
            say(&clean(text));
        }
    }

    /// Tells what somebody must know and do for the command to go on: never left out.
    pub(crate) fn instruct(&self, text: &str, data: &Value) {
        if self.is_structured() {
            say_json(data);
        } else {
            say(&text::clean_text(text));
        }
    }

    /// Warns of something that is done nevertheless.
    pub(crate) fn warn(&self, text: &str) {
        if self.is_structured() {
            say_json(&json!({"warning": {"message": text}}));
        } else {
            say(&format!("{} {}", self.paint("warning:", "\x1b[33m"), clean(text)));
        }
    }

    /// With `--verbose`, tells what was asked and what was answered.
    pub(crate) fn trace(&self, exchange: &Exchange<'_>) {
        if !self.verbose {
            return;
        }
        if self.is_structured() {
            say_json(&json!({"request": exchange}));
        } else {
            let Exchange { method, url, outcome, request_id, millis } = exchange;
            say(&clean(&format!("{method} {url} -> {outcome} in {millis} ms, request {request_id}")));
        }
    }

    /// With `--verbose`, tells under which trace the run's requests are found.
    pub(crate) fn trace_id(&self, trace_id: &str) {
        match (self.verbose, self.is_structured()) {
            (false, _) => {}
            (true, true) => say_json(&json!({"trace": {"trace_id": trace_id}})),
            (true, false) => say(&format!("trace {trace_id}")),
        }
    }

    /// Tells why the command failed: in words, or as one JSON object.
    pub(crate) fn error(&self, error: &CliError) {
        if self.is_structured() {
            say_json(&error.to_json());
            return;
        }
        say(&format!("{} {}", self.paint("error:", "\x1b[1;31m"), text::clean_text(&error.message)));
        say(&format!("{} {}", self.paint("what to do:", "\x1b[1m"), clean(&error.remediation)));
        if let Some(request) = &error.request_id {
            say(&format!("request id: {}", clean(request)));
        }
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colored { format!("{code}{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// One request and its answer, as `--verbose` tells them.
#[derive(Serialize)]
pub(crate) struct Exchange<'a> {
    /// The method.
    pub(crate) method: &'a str,
    /// The address, without its query.
    pub(crate) url: &'a str,
    /// The status, or why there is none.
    pub(crate) outcome: &'a str,
    /// What the service logs the request under.
    pub(crate) request_id: &'a str,
    /// How long it took.
    pub(crate) millis: u128,
}

fn colors(color: Color) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => io::stderr().is_terminal() && !environment::refuses_color(),
    }
}

fn write_out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Fault::writing(&error, "standard output"))
}

/// Writes a document to standard error, on a line of its own.
fn say_json(document: &Value) {
    let line = document.to_string();
    say(&if io::stderr().is_terminal() { text::clean_json(&line) } else { line });
}

/// Writes a line to standard error. Where even that fails, there is nobody left to tell.
fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
