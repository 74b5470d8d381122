//! Client library for event ingestion: sends UDM events to the service and returns a result for each.
//!
//! Every event is sent with an `event_id`, so that a retry is safe. Each result contains the id. [`HttpTransport`] sends over
//! HTTP; [`MockTransport`] replaces it in tests.
//!
//! ```no_run
//! use transport::{HttpTransport, HttpTransportConfig, Secret, Transport, TransportError, UdmEvent};
//!
//! async fn report(transport: &dyn Transport) -> Result<(), TransportError> {
//!     transport.connect().await?;
//!
//!     let accepted = transport.send(&UdmEvent::new("firewall-7")).await.into_result()?;
//!     println!("{} is stored", accepted.event_id);
//!
//!     let events = [UdmEvent::new("firewall-7"), UdmEvent::new("firewall-8").with_event_id("boot-42")];
//!     let batch = transport.send_batch(&events).await;
//!     println!("{} of {} accepted", batch.successful_events, batch.total_events);
//!     for failed in batch.results.iter().filter(|result| !result.success) {
//!         eprintln!("{} was rejected: {:?}", failed.event_id, failed.error);
//!     }
//!
//!     println!("healthy: {}", transport.health_check().await);
//!     transport.disconnect().await;
//!     Ok(())
//! }
//!
//! # async fn run() -> Result<(), TransportError> {
//! let transport = HttpTransport::new(HttpTransportConfig {
//!     api_key: Some(Secret::new("svc_ak_…")),
//!     ..HttpTransportConfig::new("http://127.0.0.1:8080")
//! });
//! report(&transport).await
//! # }
//! ```
//!
//! [`HttpTransport`] needs a Tokio runtime with its timers and its network driver (`enable_all`). Tokio panics if the runtime has
//! none. Its connections belong to the runtime that opened them: use one transport per runtime. [`MockTransport`] without a latency
//! runs anywhere.
//!
//! Before a program ends, it waits for its sends: for their tasks, or with [`flush`](Transport::flush). The end of the runtime
//! cancels the others.
//!
//! Logs (`tracing`): a warning when an outage begins and a message when it ends, once per transport, and at most one outage per
//! minute. Each retry is logged at the level `DEBUG`.
//!
//! To repeat a send that was dropped, for example by a `timeout` around it, set the id before, with [`new_event_id`]: an id that the
//! transport generates is lost together with the result.
//!
//! The types of fields are exported, so that a program needs no other crate for them:
//!
//! ```
//! use transport::{DateTime, Map, Metadata, UdmEvent, Utc, Value};
//!
//! let time: DateTime<Utc> = "2026-01-31T12:00:00Z".parse().unwrap();
//! let network = Map::from_iter([("session_id".to_owned(), Value::from("7"))]);
//! let mut event = UdmEvent::new("firewall-7").with_metadata(Metadata::new("USER_LOGIN").at(time));
//! event.network = Some(network);
//! ```
//!
//! Code that takes a `&dyn Transport` can be tested without a service:
//!
//! ```
//! use transport::{MockBehavior, MockTransport, Transport, UdmEvent};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let transport = MockTransport::new(Some(MockBehavior { fail_all: true, ..MockBehavior::default() }));
//! let result = transport.send(&UdmEvent::new("firewall-7")).await;
//! assert!(!result.success);
//! assert_eq!(transport.sent_events()[0].source_id, "firewall-7");
//! # }
//! ```

mod http;
mod in_flight;
mod mock;
mod outgoing;
mod result;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;

pub use chrono::{DateTime, Utc};
pub use contract::{ProblemKind, Secret, TraceContext};
pub use http::{BatchPipeline, HttpTransport, HttpTransportConfig, PipelineSlot, SentBatch, begin_trace};
#[doc(hidden)]
pub use http::{Endpoint, ProxyChoice, is_not_tls, is_of_another_path, root_cause, tls_errors};
pub use mock::{MockBehavior, MockTransport};
pub use outgoing::{OutgoingEvent, new_event_id};
pub use result::{
    Accepted, BatchProgress, BatchSendResult, RequestLog, SendResult, TransportError, TransportErrorKind,
};
pub use serde_json::value::RawValue;
pub use serde_json::{Map, Value};
pub use tenancy::TenantId;
pub use udm::{Metadata, Noun, UdmEvent};

/// Sends UDM events. Can be shared by concurrent tasks.
///
/// An event without an `event_id` is sent with a new one (`UUIDv7`), which the result contains. To retry an event after a
/// failed send, set the id of the result first, so that the service deduplicates it.
///
/// Cancellation: dropping the future of a send ends its work at once. No request follows, and its connection is closed. The
/// service may have accepted the events of the last request.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Connects and checks that the service accepts events. Optional: sending connects on demand.
    async fn connect(&self) -> Result<(), TransportError>;

    /// Closes the connections when the sends in flight have ended, without waiting for them. A later call opens a new one.
    async fn disconnect(&self);

    /// Waits until no send is in flight, at most this time. Returns the number of sends that are still in flight, in which a batch
    /// counts as one. Call it before a program ends. A send of a spawned task counts from the time at which the task calls it: if
    /// the task was spawned just before, wait for the task.
    async fn flush(&self, timeout: Duration) -> usize;

    /// Sends one event.
    async fn send(&self, event: &UdmEvent) -> SendResult;

    /// Sends any number of events. Returns one result per event, in the same order. A failed event does not affect others. A batch has no
    /// absolute time limit, see [`HttpTransport::with_total_timeout`].
    async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult;

    /// Sends events that are JSON already, without changing their bytes. Otherwise like [`send_batch`](Self::send_batch).
    async fn send_json(&self, events: &[OutgoingEvent]) -> BatchSendResult;

    /// Returns whether the service accepts events. Does not verify the credential: with a revoked one, each send fails.
    async fn health_check(&self) -> bool;
}

/// Implements the trait for pointers to a transport, so that a program can share one, and choose one at run time.
macro_rules! delegate {
    ($($pointer:ty),+) => {$(
        #[async_trait]
        impl<T: Transport + ?Sized> Transport for $pointer {
            async fn connect(&self) -> Result<(), TransportError> {
                (**self).connect().await
            }

            async fn disconnect(&self) {
                (**self).disconnect().await;
            }

            async fn flush(&self, timeout: Duration) -> usize {
                (**self).flush(timeout).await
            }

            async fn send(&self, event: &UdmEvent) -> SendResult {
                (**self).send(event).await
            }

            async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult {
                (**self).send_batch(events).await
            }

            async fn send_json(&self, events: &[OutgoingEvent]) -> BatchSendResult {
                (**self).send_json(events).await
            }

            async fn health_check(&self) -> bool {
                (**self).health_check().await
            }
        }
    )+};
}

delegate!(&T, Box<T>, std::sync::Arc<T>);
