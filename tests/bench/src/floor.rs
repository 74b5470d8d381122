//! The floor of HTTP: a listener of its own whose handler reads the body and ignores it.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A listener that lives as long as this.
pub(crate) struct Floor {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<std::io::Result<()>>,
}

impl Floor {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/", post(async |_: Bytes| StatusCode::ACCEPTED));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, _serving: serving })
    }
}
