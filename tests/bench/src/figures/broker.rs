//! The broker, for publishing beside the services and for counting what has arrived.

use anyhow::ensure;
use async_nats::jetstream::{self, Context};

use super::Bench;

impl Bench<'_> {
    /// The broker as its administrator.
    pub(super) async fn broker(&mut self) -> anyhow::Result<Context> {
        let config = bus::Config::new(&*self.system.run_file.nats_url, "bench");
        let context = jetstream::new(bus::connect(&config).await?);
        self.known_events = held(&context).await?;
        Ok(context)
    }

    /// Whether the stream holds all that was acknowledged since: else the figures would mean nothing.
    pub(super) async fn expect_events(&self, context: &Context, count: usize) -> anyhow::Result<()> {
        let new = held(context).await? - self.known_events;
        ensure!(new == count as u64, "{count} events were acknowledged, and the stream took {new}");
        Ok(())
    }
}

async fn held(context: &Context) -> anyhow::Result<u64> {
    Ok(context.get_stream(bus::UDM_STREAM).await?.cached_info().state.messages)
}
