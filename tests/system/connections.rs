//! Clients that hold as many connections as possible and do not complete their requests.

use std::net::{Ipv4Addr, SocketAddr};

use e2e::{Process, Services, api_client};
use serde_json::Value;
use testkit::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

/// Addresses of the clients. Each has fewer connections than the limit per address.
const ADDRESSES: u8 = 50;
const CONNECTIONS_PER_ADDRESS: u8 = 200;
/// The limit in docs/limits.md.
const MEMORY_LIMIT_KIB: u64 = 300 * 1024;

/// Opens the connections of one address, each with an unfinished request.
async fn connect(server: SocketAddr, address: u8, unfinished: &[u8]) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS_PER_ADDRESS {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 1, address), 0).into()).unwrap();
        let mut stream = socket.connect(server).await.unwrap();
        // The service closes connections above its limits.
        let _ = stream.write_all(unfinished).await;
        streams.push(stream);
    }
    streams
}

/// The memory use of a process in KiB, now or at its peak.
fn memory(process: &Process, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn unfinished_requests_on_all_connections_take_less_than_300_mib_and_other_addresses_are_answered() {
    service::process::raise_file_limit();
    let services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, _session, _ingest] = services.start_all(&[]).await;
    let idle = memory(&identity.process, "VmRSS:");
    let head = format!("GET /api/v1/docs HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(16_000));
    let body = format!(
        "POST /api/v1/auth/password/login HTTP/1.1\r\nHost: x\r\nX-Tenant-ID: acme\r\n\
         Content-Type: application/json\r\nContent-Length: 8000\r\n\r\n{}",
        " ".repeat(7999)
    );
    for unfinished in [head, body] {
        let addresses = 1..=ADDRESSES;
        let _open =
            join_all(addresses.map(|address| connect(identity.address, address, unfinished.as_bytes())))
                .await;
        let client = api_client(&format!("http://{}", identity.address));
        client.get("/openapi.json").await.expect::<Value>(200);
        let used = memory(&identity.process, "VmHWM:").saturating_sub(idle);
        assert!(used < MEMORY_LIMIT_KIB, "{used} KiB");
    }
}
