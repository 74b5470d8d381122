//! Logs: JSON on standard output, one line an event, levels from `SVC_LOG`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

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
    let json =
        tracing_subscriber::fmt().json().flatten_event(true).with_current_span(true).with_span_list(false);
    let _ = match output {
        Output::Stdout => json.with_env_filter(filter).finish().try_init(),
        Output::Stderr => json.with_writer(std::io::stderr).with_env_filter(filter).finish().try_init(),
    };
}
