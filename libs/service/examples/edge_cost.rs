//! Cost of the HTTP edge: `cargo run --release --package service --example edge_cost`. Prints the nanoseconds of a request
//! through a router with one route and no socket: without the edge, with the edge, and with the edge and traces.

use std::hint::black_box;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use service::config::{Environment, Variables as _};
use service::http::Edge;
use service::telemetry::{Output, Telemetry, TraceSettings};
use tower::ServiceExt as _;

const REQUESTS: u32 = 300_000;
const ROUNDS: usize = 5;
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let off = Telemetry::start("test", &TraceSettings::load(&Environment::default())?)?;
    // No collector listens on this port: spans are created, queued, and dropped when the queue is full.
    let collector = Environment::from_pairs([("SVC_OTLP_ENDPOINT", "http://127.0.0.1:9")]);
    let on = Telemetry::start("test", &TraceSettings::load(&collector)?)?;
    let bare = Router::new().route("/things/{thing_id}", get(async || "ok"));
    let wrap = |telemetry: &Telemetry| Edge::new("http://x", "test", telemetry).wrap(bare.clone());
    let cases = [
        ("bare", bare.clone(), None),
        ("edge", wrap(&off), None),
        ("edge, traceparent sent", wrap(&off), Some(CALLER)),
        ("edge, traces on", wrap(&on), Some(CALLER)),
    ];
    for (name, router, traceparent) in cases {
        let telemetry = if name == "edge, traces on" { &on } else { &off };
        let _subscriber = telemetry.install_for_thread("info", Output::Stderr);
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
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let mut request = Request::get("/things/1").header("x-request-id", "r-1");
        if let Some(text) = traceparent {
            request = request.header("traceparent", text);
        }
        black_box(router.clone().oneshot(request.body(Body::empty())?).await?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS))
}
