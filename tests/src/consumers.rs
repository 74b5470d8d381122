//! A nats-server with kept accounts of consumers, and a login that sends requests without pause.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use testkit::NatsServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::{Process, free_address, program};

/// Connections that the server permits for a consumer.
const CONNECTIONS: usize = 10;

/// The command `svc-ingest accounts` for a file.
pub fn accounts(arguments: &[&str], file: &Path) -> Command {
    let mut command = program("svc-ingest");
    command.arg("accounts").args(arguments).arg("--file").arg(file);
    command
}

/// The accounts of consumers of a server, and its monitoring port.
pub struct KeptAccounts {
    directory: TempDir,
    /// The monitoring port.
    pub monitor: SocketAddr,
}

impl KeptAccounts {
    /// Starts a server without consumers. Nothing keeps the accounts yet.
    pub async fn start_server() -> (Self, NatsServer) {
        let kept = Self { directory: tempfile::tempdir().unwrap(), monitor: free_address() };
        assert!(accounts(&["init"], &kept.file()).status().unwrap().success());
        // The path of an include is relative to the configuration.
        let include = format!("include \"../../../../../../..{}\"", kept.file().display());
        let accounts = testkit::nats::accounts_with(&include, str::to_owned);
        let configuration = format!("http: \"{}\"\n{accounts}", kept.monitor);
        let mut server = NatsServer::start_with(&configuration).await.unwrap();
        server.url = server.url_of("administrator");
        (kept, server)
    }

    /// Keeps the accounts.
    pub fn keep(&self, server: &NatsServer, options: &[&str]) -> Process {
        let mut keep = accounts(&["keep"], &self.file());
        keep.args(options).args(["--", "kill", "-HUP", &server.pid().unwrap().to_string()]);
        keep.env("SVC_NATS_URL", server.url_of("ingest"));
        Process::start(&mut keep, &self.directory.path().join("keep"))
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("consumers.conf")
    }
}

/// Sends requests for events of the stream `UDM` without pause over all connections that a consumer may have, until the server has closed
/// them.
pub async fn flood(address: &str, name: &str, password: &str) {
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(flood_connection(address.to_owned(), login(name, password), name.to_owned()));
    }
    connections.join_all().await;
}

fn login(name: &str, password: &str) -> String {
    format!(
        "CONNECT {{\"verbose\":false,\"user\":\"{name}\",\"pass\":\"{password}\"}}\r\nSUB answers.> 1\r\n"
    )
}

async fn flood_connection(address: String, login: String, name: String) {
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let send = async {
        writer.write_all(login.as_bytes()).await?;
        for number in 0_u64.. {
            let request =
                |each| format!("PUB $JS.API.CONSUMER.MSG.NEXT.UDM.{name} answers.{number}.{each} 0\r\n\r\n");
            writer.write_all((0..1000).map(request).collect::<String>().as_bytes()).await?;
        }
        std::io::Result::Ok(())
    };
    let mut answers = vec![0; 65_536];
    let receive = async { while reader.read(&mut answers).await.is_ok_and(|length| length > 0) {} };
    tokio::select! {
        _ = send => {}
        () = receive => {}
    }
}
