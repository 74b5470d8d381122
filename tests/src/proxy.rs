//! Caddy as the reverse proxy of the services. It routes by the table of path prefixes only.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;

use contract::API_PREFIX;
use contract::paths::{PREFIXES, Upstream};
use parking_lot::Mutex;
use tempfile::TempDir;
use testkit::wait_until;

use crate::{Process, required_variable};

/// A running Caddy.
pub struct Proxy {
    /// The origin of the proxy.
    pub base_url: String,
    _process: Process,
    _home: TempDir,
}

impl Proxy {
    /// Starts Caddy and waits until it listens.
    pub async fn start(address: SocketAddr, upstream: impl Fn(Upstream) -> SocketAddr) -> Self {
        Self::launch(address, &configuration(address, |service| upstream(service).to_string())).await
    }

    /// Starts Caddy as load balancer: of the public API at `address`, and of each other address.
    pub async fn balance(
        address: SocketAddr,
        upstreams: impl Fn(Upstream) -> Vec<SocketAddr>,
        others: &[(SocketAddr, Vec<SocketAddr>)],
    ) -> Self {
        let mut text = configuration(address, |service| balanced(&upstreams(service)));
        for (address, upstreams) in others {
            let (ip, upstreams) = (address.ip(), balanced(upstreams));
            let _ = writeln!(text, "http://{address} {{\n\tbind {ip}\n\treverse_proxy {upstreams}\n}}");
        }
        Self::launch(address, &text).await
    }

    async fn launch(address: SocketAddr, configuration: &str) -> Self {
        let home = tempfile::Builder::new().prefix("svc-e2e-proxy-").tempdir().unwrap();
        let file = home.path().join("Caddyfile");
        std::fs::write(&file, configuration).unwrap();
        let caddy = required_variable("SVC_TEST_CADDY");
        let mut command = Command::new(caddy);
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
        command.env_clear().env("HOME", home.path());
        let mut process = Process::start(&mut command, &home.path().join("output"));
        let base_url = format!("http://{address}");
        wait_until("the proxy listens", async || {
            process.expect_running();
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
        Self { base_url, _process: process, _home: home }
    }
}

/// Routes each prefix to its service and all other paths to identity.
fn configuration(address: SocketAddr, upstream: impl Fn(Upstream) -> String) -> String {
    let mut text = String::from("{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}\n");
    let _ = writeln!(text, "http://{address} {{\n\tbind {}", address.ip());
    for service in [Upstream::Session, Upstream::Ingest] {
        let name = service.name();
        let _ = write!(text, "\t@{name} path");
        for (prefix, _) in PREFIXES.iter().filter(|(_, serves)| *serves == service) {
            let _ = write!(text, " {API_PREFIX}{prefix} {API_PREFIX}{prefix}/*");
        }
        let _ = writeln!(text, "\n\treverse_proxy @{name} {}", upstream(service));
    }
    let _ = writeln!(text, "\treverse_proxy {}\n}}", upstream(Upstream::Identity));
    text
}

/// The upstreams of a load balancer. A process that does not accept connections gets no requests for a second.
fn balanced(upstreams: &[SocketAddr]) -> String {
    let upstreams: Vec<_> = upstreams.iter().map(ToString::to_string).collect();
    let settings = "lb_policy round_robin\n\t\tlb_retries 2\n\t\tfail_duration 1s";
    format!("{} {{\n\t\t{settings}\n\t}}", upstreams.join(" "))
}

/// A free address on loopback, below the ephemeral port range. Each call returns another port, also in test processes that run at the
/// same time: the port belongs to this process until it ends.
pub fn free_address() -> SocketAddr {
    static OWN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let directory = std::env::temp_dir().join("svc-test-ports");
    std::fs::create_dir_all(&directory).unwrap();
    for port in 10_000..18_000 {
        let file = File::create(directory.join(port.to_string())).unwrap();
        if file.try_lock().is_ok()
            && let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        {
            OWN.lock().push(file);
            return listener.local_addr().unwrap();
        }
    }
    panic!("no free port")
}
