//! The documented memory of a batch. The only test of its process, because it counts all allocations.

use std::io::Read;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use flate2::read::GzDecoder;
use peak_alloc::PeakAlloc;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, Transport, UdmEvent};
use uuid::Uuid;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1024 * 1024;
/// The events of one request and their compressed form, at most 10 MiB each.
const DOCUMENTED: usize = 20 * MIB;
/// Connections, the server of the test, and the results.
const OTHER: usize = 4 * MIB;

/// Accepts all events of a batch, without holding their JSON.
async fn accept(body: Bytes) -> axum::Json<serde_json::Value> {
    let mut events = 0;
    let mut decoder = GzDecoder::new(&body[..]);
    let mut piece = [0; 8192];
    while let Ok(length @ 1..) = decoder.read(&mut piece) {
        // One per event: only its first field has this byte.
        events += piece[..length].split(|byte| *byte == b'#').count() - 1;
    }
    let result = |index| json!({"index": index, "status": "accepted", "server_event_id": Uuid::nil()});
    axum::Json(json!({
        "batch_id": Uuid::nil(), "total_events": events, "successful_events": events, "failed_events": 0,
        "results": (0..events).map(result).collect::<Vec<_>>(),
    }))
}

#[tokio::test]
async fn a_batch_of_any_length_holds_the_json_of_one_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/api/v1/events/batch", post(accept)).layer(DefaultBodyLimit::disable());
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, router).await });

    let event = UdmEvent::new("#").with_field("x", "x".repeat(200 * 1024));
    let events = vec![event; 250];
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let transport = HttpTransport::new(HttpTransportConfig::new(endpoint));
    let batch = transport.send_batch(&events).await;
    assert!(batch.success, "{:?}", batch.results.iter().find(|result| !result.success));
    assert_eq!(batch.successful_events, 250);
    let held = MEMORY.peak_usage() - before;
    assert!(held < DOCUMENTED + OTHER, "{} MiB", held / MIB);
}
