//! Prints the events of a durable consumer. `NATS_URL`, `NATS_USER` and `NATS_PASSWORD` configure it. SIGINT stops it.

use consumer::{Config, ConsumerError, Failure};

const MAX_PAYLOAD: usize = 100_000;

#[tokio::main]
async fn main() -> Result<(), ConsumerError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    consumer::run(Config::from_env()?, stop, async |event| {
        if event.payload.len() > MAX_PAYLOAD {
            return Err(Failure::reject("too large for this consumer"));
        }
        println!("{} {} {} {}", event.tenant_id, event.source_id, event.event_id, event.event_type);
        Ok(())
    })
    .await
}
