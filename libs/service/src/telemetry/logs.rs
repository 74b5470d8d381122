//! Logs: JSON on standard output, one line an event, levels from `SVC_LOG`. A line that is written for a request carries
//! the request's id, the address it comes from and the id of its trace.

use std::fmt::{self, Write as _};

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::context::{Current, current};
use crate::config::Variable;

/// What is logged.
pub const LOG: Variable = Variable {
    name: "SVC_LOG",
    form: "level, or tracing-subscriber directives",
    default: Some("info"),
    secret: false,
    meaning: "What is logged: error, warn, info, debug or trace, also for single modules (`info,identity=debug`).",
};

/// Sends the process's logs to standard error instead, where standard output belongs to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// What a container's log is read from.
    Stdout,
    /// For processes that talk to a person on standard output.
    Stderr,
}

/// Starts logging. A second call in one process does nothing.
pub fn start(directives: &str, output: Output) {
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let json = tracing_subscriber::fmt().fmt_fields(JsonFields::new()).event_format(WithIds::default());
    let _ = match output {
        Output::Stdout => json.with_env_filter(filter).finish().try_init(),
        Output::Stderr => json.with_writer(std::io::stderr).with_env_filter(filter).finish().try_init(),
    };
}

/// The library's JSON, with what tells the request at hand as further members.
struct WithIds(Format<Json>);

impl Default for WithIds {
    fn default() -> Self {
        Self(Format::default().json().flatten_event(true).with_current_span(true).with_span_list(false))
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

/// None of them holds a character that JSON would want escaped.
fn with_ids(object: &str, request: &Current) -> Result<String, fmt::Error> {
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::http::RequestId;
    use crate::telemetry::{TraceContext, in_request};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
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
    async fn a_line_of_a_request_carries_its_ids_and_any_other_carries_none() {
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
        let request = Current { request_id: RequestId::of(&headers), client, trace };
        in_request(request, async { tracing::warn!(n = 1, "inside \"}}") }).await;
        tracing::warn!("outside");

        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let parsed: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0]["message"], "inside \"}");
        assert_eq!(parsed[0]["request_id"], "r-1");
        assert_eq!(parsed[0]["client_address"], "192.0.2.1");
        assert_eq!(parsed[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((&parsed[1]["message"], parsed[1].get("request_id")), (&"outside".into(), None));
    }
}
