//! What the edge costs a request: `cargo run --release --package service --example edge_cost`. Nanoseconds for a request
//! through a router of one route, without a socket: bare, behind the edge, and behind the edge with traces on.

use std::hint::black_box;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use service::config::{Environment, Variables as _};
use service::http::Edge;
use service::telemetry::{Telemetry, TraceSettings};
use tower::ServiceExt as _;

const REQUESTS: u32 = 300_000;
const ROUNDS: usize = 5;
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let off = Telemetry::start("test", &TraceSettings::load(&Environment::default())?)?;
    // Nobody listens there: spans are made, queued, and dropped when the queue is full.
    let collector = Environment::from_pairs([("SVC_OTLP_ENDPOINT", "http://127.0.0.1:9")]);
    let on = Telemetry::start("test", &TraceSettings::load(&collector)?)?;
    let bare = Router::new().route("/things/{thing_id}", get(async || "ok"));
    let behind = |telemetry: &Telemetry| Edge::new("http://x", "test", telemetry).wrap(bare.clone());
    let cases = [
        ("bare", bare.clone(), None),
        ("edge", behind(&off), None),
        ("edge, traceparent sent", behind(&off), Some(CALLER)),
        ("edge, traces on", behind(&on), Some(CALLER)),
    ];
    for (name, router, traceparent) in cases {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&router, traceparent).await?);
        }
        rounds.sort_by(f64::total_cmp);
        println!("{name:24} {:7.0} ns", rounds[ROUNDS / 2]);
    }
    Ok(())
}

async fn round(router: &Router, traceparent: Option<&str>) -> anyhow::Result<f64> {
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let mut request = Request::get("/things/1").header("x-request-id", "r-1");
        if let Some(text) = traceparent {
            request = request.header("traceparent", text);
        }
        black_box(router.clone().oneshot(request.body(Body::empty())?).await?);
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS))
}
