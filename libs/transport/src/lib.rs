//! Client side of event ingestion: sends UDM events to the service and says what became of each.
//!
//! Every event leaves with an `event_id`, so sending it again is safe; each result carries that id. A failed send is a
//! result, never a panic. [`HttpTransport`] is the real thing, [`MockTransport`] stands in for it in tests.
//!
//! ```no_run
//! use transport::{HttpTransport, HttpTransportConfig, Secret, Transport, TransportError, UdmEvent};
//!
//! async fn report(transport: &dyn Transport) -> Result<(), TransportError> {
//!     transport.connect().await?;
//!
//!     let result = transport.send(&UdmEvent::new("firewall-7")).await;
//!     match result.error {
//!         None => println!("accepted as {:?}", result.server_event_id),
//!         Some(error) => eprintln!("{} was not accepted: {error}", result.event_id),
//!     }
//!
//!     let events = [UdmEvent::new("firewall-7"), UdmEvent::new("firewall-8").with_event_id("boot-42")];
//!     let batch = transport.send_batch(&events).await;
//!     println!("{} of {} accepted", batch.successful_events, batch.total_events);
//!     for failed in batch.results.iter().filter(|result| !result.success) {
//!         eprintln!("{} was not accepted: {:?}", failed.event_id, failed.error);
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
//! Code that takes a `&dyn Transport` is tested without a service:
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

mod error;
mod http;
mod mock;
mod outgoing;
mod result;
#[cfg(test)]
mod tests;
mod trace;

use async_trait::async_trait;

pub use contract::{Secret, TraceContext};
pub use error::{TransportError, TransportErrorKind};
pub use http::{HttpTransport, HttpTransportConfig};
pub use mock::{MockBehavior, MockTransport};
pub use outgoing::{OutgoingEvent, new_event_id};
pub use result::{BatchSendResult, SendResult};
pub use trace::begin_trace;
pub use udm::UdmEvent;

/// Sends UDM events. One value serves many tasks at once.
///
/// An event without an `event_id` gets one (`UUIDv7`) on the way out; the result carries it. To send an event again after
/// a failure, give it the result's id first: then the service keeps it once, however often it arrives.
///
/// Dropping the future of a send abandons it; what was under way may still have been accepted.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Establishes the connection, and makes sure that events can be accepted now. Sending without it connects by itself.
    async fn connect(&self) -> Result<(), TransportError>;

    /// Closes the connection. A later call opens a new one.
    async fn disconnect(&self);

    /// Sends one event.
    async fn send(&self, event: &UdmEvent) -> SendResult;

    /// Sends a list of events of any length. There is one result per event, in the list's order; one that fails holds up no other.
    async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult;

    /// Whether events can be accepted now.
    async fn health_check(&self) -> bool;
}
