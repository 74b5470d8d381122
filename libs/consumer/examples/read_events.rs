//! Prints the events of a durable consumer. `NATS_URL`, `NATS_USER` and `NATS_PASSWORD` configure it. SIGINT and SIGTERM stop it.

use std::io::Write as _;
use std::sync::Arc;

use consumer::{Config, ConsumerError, Failure};

const MAX_PAYLOAD: usize = 100_000;

#[tokio::main]
async fn main() -> Result<(), ConsumerError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // What the handler uses, such as a pool of connections to a database. Each call gets a clone.
    let output = Arc::new(std::io::stdout());
    consumer::run(Config::from_env()?, consumer::shutdown_signal(), move |event| {
        let output = Arc::clone(&output);
        async move {
            if event.payload.len() > MAX_PAYLOAD {
                return Err(Failure::reject("too large for this consumer"));
            }
            let (tenant, source) = (&event.tenant_id, &event.source_id);
            // After an error of `?`, the event is tried again.
            writeln!(output.lock(), "{tenant} {source} {} {}", event.event_id, event.event_type)?;
            Ok(())
        }
    })
    .await
}
