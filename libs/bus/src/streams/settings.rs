//! Settings that the streams of events and of audit events share, and their handling at start.

use std::time::Duration;

use async_nats::jetstream::Context;
use service::chain;
use service::config::{Setting, Variable};
use tokio::time::sleep;

use super::{StreamDefinition, StreamError};
use crate::connect::{Config, connect};

/// Interval between checks of streams that are missing or wrongly configured.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Handling of the streams at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMode {
    /// Checks them.
    Verify,
    /// Also creates missing ones.
    Ensure,
}

service::variables! {
    /// Settings of all streams.
    #[derive(Clone, Copy)]
    pub struct StreamSettings {
        /// Handling of the streams at start: `ensure` creates missing ones, and ingest updates retention, size and compression
        /// of its existing ones; `verify` changes nothing. A warning is logged if these settings differ.
        pub mode: StreamMode = Variable::new("SVC_STREAM_MODE", "`ensure` or `verify`")
            .default("ensure")
            .one_of([("verify", StreamMode::Verify), ("ensure", StreamMode::Ensure)]),
        /// Minimum number of servers that store each message.
        pub replicas: usize = Variable::new("SVC_STREAM_REPLICAS", "number, 1 to 5").default("3").between(1, 5),
        /// Maximum size of the stored events. The streams `UDM_DLQ` (of ingest) and `AUDIT` (of identity) get an eighth of it each,
        /// `AUDIT_ANONYMOUS` a 64th. At most 75 % of `max_file_store` of a server.
        pub max_bytes: u64 = Variable::new("SVC_STREAM_MAX_BYTES", "size, 8MiB to 1024TiB, as in `20GiB`").bytes(8 << 20, 1 << 50),
        /// Compression of stored messages by the broker. The maximum sizes apply to the sizes before compression.
        pub compression: bool = Variable::new("SVC_STREAM_COMPRESSION", "`none` or `s2`")
            .default("none")
            .one_of([("none", false), ("s2", true)]),
    }
}

/// Returns the setting of a retention.
pub fn retention(name: &'static str, default: &'static str) -> Setting<Duration> {
    Variable::new(name, "duration, 5m to 3650d")
        .default(default)
        .duration(Duration::from_mins(5), Duration::from_hours(3650 * 24))
}

/// Handles the streams of the account with `handle` until they are valid. Logs each error once.
pub async fn until_valid(
    nats: &Config,
    api_prefix: &str,
    definitions: &[StreamDefinition],
    handle: impl AsyncFn(&Context, Vec<StreamDefinition>) -> Result<(), StreamError>,
) {
    let handle_once = async || {
        let client = connect(nats).await.map_err(|error| chain(&error))?;
        let context = async_nats::jetstream::with_prefix(client, api_prefix);
        handle(&context, definitions.to_vec()).await.map_err(|error| chain(&error))
    };
    let mut logged = String::new();
    while let Err(error) = handle_once().await {
        if error != logged {
            tracing::error!(error, "failed to check streams; retrying");
            logged = error;
        }
        sleep(CHECK_INTERVAL).await;
    }
}
