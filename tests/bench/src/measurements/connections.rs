//! Memory of 10,000 connections that do not complete their requests.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{Bench, mebibytes};
use crate::http::{Connection, request};
use crate::process::{PeakMemory, resident_bytes};

const CONNECTIONS: usize = 10_000;
/// Smaller than the limit of a request head.
const HEAD_BYTES: usize = 16_000;
/// Smaller than the limit of the body of a login.
const BODY_BYTES: usize = 8_000;

impl Bench<'_> {
    /// Measures unfinished request heads, then unfinished bodies.
    pub(crate) async fn connections(&mut self) -> anyhow::Result<()> {
        let complete = request("GET", "/api/v1/health", &[], b"");
        let head = [&complete[..complete.len() - 2], b"X: ", &vec![b'x'; HEAD_BYTES]].concat();
        let login =
            request("POST", "/api/v1/auth/password/login", &[("X-Tenant-ID", "demo")], &[b' '; BODY_BYTES]);
        let body = login[..login.len() - 1].to_vec();
        let heads = "memory of 10,000 connections with unfinished heads, MiB";
        self.unfinished_requests(heads, &head, &complete).await?;
        let bodies = "memory of 10,000 connections with unfinished bodies, MiB";
        self.unfinished_requests(bodies, &body, &complete).await
    }

    async fn unfinished_requests(
        &mut self,
        name: &'static str,
        unfinished: &[u8],
        complete: &[u8],
    ) -> anyhow::Result<()> {
        let before = resident_bytes(self.system.pid());
        let peak = PeakMemory::of(self.system.pid());
        let mut streams = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            streams.push(TcpStream::connect(self.system.address).await?);
        }
        for stream in &mut streams {
            // The services close connections above their limits of memory.
            let _ = stream.write_all(unfinished).await;
        }
        Connection::open(self.system.address).await?.exchange(complete).await?.expect(200)?;
        let bytes = peak.bytes().saturating_sub(before);
        self.report.add_value(name, vec![mebibytes(bytes)]);
        Ok(())
    }
}
