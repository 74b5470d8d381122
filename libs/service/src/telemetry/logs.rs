//! Logs: one JSON object per line, with levels from `SVC_LOG`. A line of a request contains the request id, the client
//! address and the trace id. An error is logged with its sources in one line, and warnings that clients cause have a rate
//! limit.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use super::context::{RequestContext, current};
use crate::config::Variable;

/// Log level.
pub const LOG: Variable = Variable::new("SVC_LOG", "level, or tracing-subscriber directives").default("info").meaning(
    "Log level: error, warn, info, debug or trace. Directives set it for single modules (`info,identity=debug`).",
);

/// Destination of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, for containers.
    Stdout,
    /// Standard error, for processes that print to people on standard output.
    Stderr,
}

/// Checks `SVC_LOG`, and returns it. A single word must be a level: the library would take any other word for a module.
///
/// # Errors
/// A message that describes the expected form.
pub fn parse_directives(text: &str) -> Result<String, String> {
    let is_word = |part: &str| !part.contains(['=', '[']);
    let mut parts = text.split(',');
    if parts.any(|part| is_word(part) && part.parse::<LevelFilter>().is_err()) {
        return Err("must be levels or module=level, separated by commas".to_owned());
    }
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Creates the filter of levels. Rejected certificates and failed connections to NATS are logged by the caller, so the log lines of the
/// libraries are off, except if a directive names them.
pub(super) fn levels(directives: &str) -> EnvFilter {
    let with_defaults =
        |directives: &str| format!("rustls_platform_verifier=off,async_nats=off,{directives}");
    EnvFilter::try_new(with_defaults(directives)).unwrap_or_else(|_| EnvFilter::new(with_defaults("info")))
}

/// Creates the filter that rejects spans: their data would repeat the request's.
pub(super) fn without_spans() -> FilterFn {
    filter_fn(|metadata| !metadata.is_span())
}

/// Creates the layer that writes events.
pub(super) fn layer<S>(output: Output) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let writer = match output {
        Output::Stdout => BoxMakeWriter::new(std::io::stdout),
        Output::Stderr => BoxMakeWriter::new(std::io::stderr),
    };
    tracing_subscriber::fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(WithIds::default())
        .with_writer(writer)
}

/// JSON format of the library with the data of the current request as additional members.
struct WithIds(Format<Json>);

impl Default for WithIds {
    fn default() -> Self {
        Self(Format::default().json().flatten_event(true).with_current_span(false).with_span_list(false))
    }
}

impl<S, N> FormatEvent<S, N> for WithIds
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(request) = current(Clone::clone) else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{}", with_ids(line.trim_end(), &request)?)
    }
}

/// The values contain no character that JSON escapes.
fn with_ids(object: &str, request: &RequestContext) -> Result<String, fmt::Error> {
    let mut line = object.strip_suffix('}').ok_or(fmt::Error)?.to_owned();
    write!(line, r#","request_id":"{}""#, request.request_id.as_str())?;
    if let Some(client) = request.client {
        write!(line, r#","client_address":"{client}""#)?;
    }
    if let Some(trace) = request.trace {
        write!(line, r#","trace_id":"{:032x}""#, trace.trace_id)?;
    }
    line.push('}');
    Ok(line)
}

/// Interval in which a [`LogThrottle`] counts lines.
const THROTTLE_INTERVAL: Duration = Duration::from_mins(1);

/// Returns an error and all its sources as one line. The `Display` of an error does not contain its source. sqlx appends the line in the
/// source code of Postgres to its messages, which is omitted.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // The texts of some libraries contain that of their source.
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    match text.rsplit_once(" at line ") {
        Some((message, line)) if message.contains("from database: ") && line.parse::<u32>().is_ok() => {
            message.to_owned()
        }
        _ => text,
    }
}

/// Limits lines that clients can cause, by default to one per minute.
#[derive(Debug)]
pub struct LogThrottle {
    limit: u64,
    /// Start of the minute, and the lines in it, also those that were not logged.
    minute: Mutex<Option<(Instant, u64)>>,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::per_minute(1)
    }
}

impl LogThrottle {
    /// Permits this number of lines in a minute.
    pub const fn per_minute(limit: u64) -> Self {
        Self { limit, minute: Mutex::new(None) }
    }

    /// Returns whether a line can be logged now.
    pub fn is_due(&self) -> bool {
        self.due().is_some()
    }

    /// Returns how many lines were not logged in the last minute that had lines, if a line can be logged now.
    pub fn due(&self) -> Option<u64> {
        let mut minute = self.minute.lock();
        if let Some((start, lines)) = minute.as_mut()
            && start.elapsed() < THROTTLE_INTERVAL
        {
            *lines += 1;
            return (*lines <= self.limit).then_some(0);
        }
        let (_, lines) = minute.replace((Instant::now(), 1)).unzip();
        Some(lines.unwrap_or_default().saturating_sub(self.limit))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::telemetry::{RequestId, TraceContext, in_request};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[tokio::test]
    async fn only_the_log_lines_of_a_request_contain_its_ids() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(JsonFields::new())
            .event_format(WithIds::default())
            .with_writer(lines.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let headers = http::HeaderMap::from_iter([("x-request-id".parse().unwrap(), "r-1".parse().unwrap())]);
        let trace = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let client = Some(std::net::IpAddr::from([192, 0, 2, 1]));
        let request =
            RequestContext { request_id: RequestId::from_headers(&headers), client, is_public: true, trace };
        in_request(request, async { tracing::warn!(n = 1, "inside \"}}") }).await;
        tracing::warn!("outside");

        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let parsed: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0]["message"], "inside \"}");
        assert_eq!(parsed[0]["request_id"], "r-1");
        assert_eq!(parsed[0]["client_address"], "192.0.2.1");
        assert_eq!(parsed[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((&parsed[1]["message"], parsed[1].get("request_id")), (&"outside".into(), None));
    }

    #[test]
    fn a_chain_contains_a_repeated_text_of_a_source_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("failed to connect")]
        struct Plain(#[source] Repeating);
        #[derive(Debug, thiserror::Error)]
        #[error("error of the network: {0}")]
        struct Repeating(#[source] std::io::Error);
        let error = Plain(Repeating(std::io::Error::other("refused")));
        assert_eq!(chain(&error), "failed to connect: error of the network: refused");
    }

    #[test]
    fn a_chain_omits_the_line_in_the_source_code_of_postgres() {
        let chain = |text: &str| super::chain(&std::io::Error::other(text));
        let message = "error returned from database: password authentication failed";
        assert_eq!(chain(&format!("{message} at line 321")), message);
        for other in ["invalid directive at line 3", "error returned from database: no table at line three"] {
            assert_eq!(chain(other), other);
        }
    }

    #[test]
    fn log_directives_name_levels() {
        for good in ["info", "off", "warn,identity=debug", "info,identity::http=trace"] {
            assert_eq!(parse_directives(good).as_deref(), Ok(good));
        }
        for bad in ["inf", "bogus=foo=bar", "info,identity", "identity=loud", "info, identity=debug"] {
            assert!(parse_directives(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn log_lines_of_the_nats_client_are_off_unless_a_directive_names_it() {
        for (directives, is_logged) in [("info", false), ("debug", false), ("info,async_nats=info", true)] {
            let lines = Lines::default();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(levels(directives))
                .with_writer(lines.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: "async_nats::connector", "event: client error");
            });
            assert_eq!(!lines.0.lock().is_empty(), is_logged, "{directives}");
        }
    }

    #[test]
    fn only_the_first_of_many_warnings_is_due() {
        let throttle = LogThrottle::default();
        assert_eq!((0..1000).filter(|_| throttle.is_due()).count(), 1);
        let throttle = LogThrottle::per_minute(60);
        assert_eq!((0..1000).filter(|_| throttle.is_due()).count(), 60);
    }
}
