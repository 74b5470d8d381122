//! The two output streams: data on standard output in the selected format, everything else on standard error. Untrusted text
//! is escaped for the terminal.

mod cell;
mod layout;
mod table;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::marker::PhantomData;
use std::time::Duration;

use clap::ColorChoice;
use contract::names;
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};

use crate::framework::arguments::{Format, Globals};
use crate::framework::environment;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::terminal::print_line;

pub(crate) use cell::{
    Cell, address, duration, id, name, now, optional, relative, text, time, timestamp, word,
};
pub(crate) use layout::wrapped;
pub(crate) use table::{ItemList, Row, Table};

use self::layout::View;

/// Data that a command prints. The JSON output is the serialized type; the catalog's `output_schema` is its schema.
pub(crate) trait CommandOutput: Serialize + JsonSchema {
    /// Data for people.
    fn table(&self) -> Table;

    /// The JSON document, with a line ending.
    fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// NDJSON lines: one, unless the type is a list.
    fn lines(&self) -> serde_json::Result<Vec<String>> {
        Ok(vec![serde_json::to_string(self)?])
    }

    /// Error of the command in spite of its data.
    fn error(&self) -> Option<CliError> {
        None
    }

    /// Whether this run of a command that can have an effect had none.
    fn is_read(&self) -> bool {
        false
    }
}

/// Data that the command has printed line by line.
#[derive(Debug, Serialize)]
pub(crate) struct Streamed<T>(#[serde(skip)] PhantomData<T>);

impl<T> Streamed<T> {
    pub(crate) const fn all() -> Self {
        Self(PhantomData)
    }
}

impl<T: JsonSchema> JsonSchema for Streamed<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> CommandOutput for Streamed<T> {
    fn table(&self) -> Table {
        Table::empty()
    }

    fn json(&self) -> serde_json::Result<String> {
        Ok(String::new())
    }

    fn lines(&self) -> serde_json::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// Columns that the last table omitted. A table that is printed again does not repeat the notice.
static OMITTED: Mutex<String> = Mutex::new(String::new());

/// Writes data and messages as the global options request.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    format: Format,
    quiet: bool,
    verbose: bool,
    colored: bool,
}

impl Output {
    pub(crate) fn new(globals: &Globals) -> Self {
        Self {
            format: globals.output,
            quiet: globals.quiet,
            verbose: globals.verbose,
            colored: use_color(globals.color),
        }
    }

    /// Output for errors that occur before the options are parsed.
    pub(crate) fn before_parsing(format: Format, color: ColorChoice) -> Self {
        Self { format, quiet: false, verbose: false, colored: use_color(color) }
    }

    /// Returns whether messages are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format != Format::Table
    }

    /// Returns whether each item is printed on its own line as JSON.
    pub(crate) fn is_ndjson(&self) -> bool {
        self.format == Format::Ndjson
    }

    /// Returns whether to show progress on standard error.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && !self.is_json() && environment::has_escape_sequences() && !environment::is_ci()
    }

    /// Prints the data of a command.
    pub(crate) fn print(&self, data: &impl CommandOutput) -> Result<()> {
        let text = match self.format {
            Format::Table => return self.print_table(&data.table()),
            Format::Json => data.json().map_err(|error| defect(&error))?,
            Format::Ndjson => data
                .lines()
                .map_err(|error| defect(&error))?
                .iter()
                .fold(String::new(), |text, line| text + line + "\n"),
        };
        print_json(&text)
    }

    fn print_table(&self, table: &Table) -> Result<()> {
        if self.quiet && table.is_message() {
            return Ok(());
        }
        let mut omitted = Vec::new();
        write_stdout(&table.render(View::for_stdout(), &mut omitted))?;
        let columns = omitted.join(", ");
        let last = std::mem::replace(&mut *OMITTED.lock(), columns.clone());
        if !columns.is_empty() && columns != last {
            self.notice(&format!("omitted: {columns}; a wider terminal or -o json shows them"));
        }
        Ok(())
    }

    /// Prints bytes that are not text of this program unchanged. On a terminal, control characters are escaped.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<()> {
        if io::stdout().is_terminal() {
            return self.print_table(&Table::text(&String::from_utf8_lossy(bytes)));
        }
        write_bytes(bytes)
    }

    /// Prints one of many results of a command on one line.
    pub(crate) fn print_line(&self, data: &impl CommandOutput) -> Result<()> {
        if !self.is_json() {
            return self.print(data);
        }
        print_json(&(serde_json::to_string(data).map_err(|error| defect(&error))? + "\n"))
    }

    /// Prints information for people. Omitted with `--quiet` and with JSON output.
    pub(crate) fn notice(&self, text: &str) {
        if !self.quiet && !self.is_json() {
            print_line(&for_stderr(&escape(text)));
        }
    }

    /// Explains that the command waits for input, if it reads it from a terminal. `key` ends the input.
    pub(crate) fn announce_input(&self, what: &str, key: &str) {
        if io::stdin().is_terminal() {
            self.notice(&format!("reading the {what} from the terminal; end with {key}"));
        }
    }

    /// Explains on a terminal why the command waits.
    pub(crate) fn announce_wait(&self, pause: Duration, cause: &str) {
        if self.shows_progress() {
            print_line(&format!("waiting {} s: {cause}", pause.as_secs_f64().ceil()));
        }
    }

    /// Prints an instruction without which the command cannot continue. Never omitted.
    pub(crate) fn instruct(&self, text: &str, data: &Value) {
        if self.is_json() {
            write_stderr_json(data);
        } else {
            print_line(&escape_lines(text));
        }
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: &str) {
        if self.is_json() {
            write_stderr_json(&json!({"warning": {"message": text}}));
        } else {
            self.labeled("warning:", "\x1b[33m", &escape(text));
        }
    }

    /// Logs a request, with `--verbose`.
    pub(crate) fn log_request(&self, request: &RequestLog<'_>) {
        let RequestLog { method, url, outcome, request_id, millis } = request;
        if self.verbose {
            let text = format!("{method} {url} -> {outcome} in {millis} ms, request {request_id}");
            self.instruct(&escape(&text), &json!({"request": request}));
        }
    }

    /// Logs the trace id of the run's requests, with `--verbose`.
    pub(crate) fn log_trace_id(&self, trace_id: &str) {
        if self.verbose {
            self.instruct(&format!("trace {trace_id}"), &json!({"trace": {"trace_id": trace_id}}));
        }
    }

    /// Prints the error of the command.
    pub(crate) fn error(&self, error: &CliError) {
        if self.is_json() {
            write_stderr_json(&error.to_json());
            return;
        }
        self.labeled("error:", "\x1b[1;31m", &escape_lines(&error.message));
        self.labeled("what to do:", "\x1b[1m", &escape(&error.remediation));
        if let Some(request) = &error.request_id {
            print_line(&format!("request id: {}", escape(request)));
        }
    }

    /// Prints a message after a label in a color.
    fn labeled(&self, label: &str, color: &str, text: &str) {
        let message = for_stderr(&format!("{label} {text}"));
        match message.strip_prefix(label) {
            Some(rest) if self.colored => print_line(&format!("{color}{label}\x1b[0m{rest}")),
            _ => print_line(&message),
        }
    }
}

/// One request and its result, for `--verbose`.
#[derive(Serialize)]
pub(crate) struct RequestLog<'a> {
    pub(crate) method: &'a str,
    /// URL without query.
    pub(crate) url: &'a str,
    /// HTTP status, or the code of the error.
    pub(crate) outcome: &'a str,
    pub(crate) request_id: &'a str,
    pub(crate) millis: u128,
}

fn use_color(color: ColorChoice) -> bool {
    match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => environment::is_colored(),
    }
}

fn defect(error: &serde_json::Error) -> CliError {
    ErrorKind::Defect.with_message(format!("failed to serialize the output: {error}"))
}

fn print_json(text: &str) -> Result<()> {
    if io::stdout().is_terminal() { write_stdout(&escape_json(text)) } else { write_stdout(text) }
}

fn write_stdout(text: &str) -> Result<()> {
    write_bytes(text.as_bytes())
}

fn write_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| CliError::write_failed(&error, "standard output"))
}

/// Writes a JSON document on one line.
fn write_stderr_json(document: &Value) {
    let line = document.to_string();
    print_line(&if io::stderr().is_terminal() { escape_json(&line) } else { line });
}

/// Breaks the lines of a message if standard error is a terminal.
fn for_stderr(text: &str) -> String {
    match layout::width_of(io::stderr()) {
        Some(width) => layout::wrapped(text, width, 0),
        None => text.to_owned(),
    }
}

/// The start of a text that fits on one line of the terminal.
pub(crate) fn fitted_to_stderr(text: &str) -> String {
    match layout::width_of(io::stderr()) {
        Some(width) => layout::cut_to(text, width),
        None => text.to_owned(),
    }
}

/// Escapes control characters, line endings and characters that change the text direction.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if names::is_unsafe(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Like [`escape`], but keeps line endings and tabs.
pub(crate) fn escape_lines(text: &str) -> String {
    text.split_inclusive(['\n', '\t']).fold(String::with_capacity(text.len()), |mut all, part| {
        let kept = part.trim_end_matches(['\n', '\t']).len();
        all.push_str(&escape(&part[..kept]));
        all.push_str(&part[kept..]);
        all
    })
}

/// Escapes unsafe characters of a JSON document as `\u00XX` without changing its meaning. They occur only in strings, and
/// JSON itself escapes those of ASCII except DEL.
fn escape_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut all, c| {
        if c > '~' && names::is_unsafe(c) {
            // All of them are in the basic multilingual plane, so that one escape is enough.
            all.extend(format!("\\u{:04x}", u32::from(c)).chars());
        } else {
            all.push(c);
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_control_and_direction_characters() {
        assert_eq!(escape("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\u{d}\\u{a}");
        assert_eq!(escape("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
        assert_eq!(escape("Zoë 山 👩"), "Zoë 山 👩");
    }

    #[test]
    fn escaped_json_keeps_its_meaning() {
        let value = serde_json::json!({"a\u{9b}": "\u{7f}\u{9d}0;x\u{61c}\u{202e} Zoë\n"});
        let escaped = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(escaped.contains(r"\u009d0;x\u061c\u202e Zoë\n") && escaped.contains("{\n"), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    proptest! {
        #[test]
        fn escaped_json_has_no_unsafe_characters(text in any::<String>()) {
            let escaped = escape_json(&serde_json::to_string(&text).unwrap());
            prop_assert!(!escaped.chars().any(names::is_unsafe));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }

        #[test]
        fn escaped_text_has_no_unsafe_characters(text in any::<String>()) {
            prop_assert!(!escape(&text).chars().any(names::is_unsafe));
        }
    }
}
