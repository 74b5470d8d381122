//! The images of `make image`: their size, and the time from the start of a program to readiness with a running database and
//! broker.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::{Bench, mebibytes, milliseconds};
use crate::http::{Connection, request};
use crate::system::{STREAM_BYTES, stop};

const ROUNDS: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(1);
const LIMITER_KEY: &str = "a-limiter-key-for-the-bench-of-32-or-more";
/// Required by the configuration; no request uses it.
const SERVICE_TOKEN: &str = "a-service-token-for-the-bench-of-32-or-more";

/// Images and the names of their measurements.
const IMAGES: [(&str, &str, Option<&str>); 4] = [
    ("svc-identity", "size of image svc-identity, MiB", Some("  start until ready, ms")),
    ("svc-session", "size of image svc-session, MiB", Some("  start until ready, ms")),
    ("svc-ingest", "size of image svc-ingest, MiB", Some("  start until ready, ms")),
    ("svc", "size of image svc, MiB", None),
];

/// An entry of the list that `deploy/image.py` writes.
#[derive(Deserialize)]
struct Image {
    name: String,
    bytes: u64,
    program: PathBuf,
}

impl Bench<'_> {
    /// Measures the images in the list. Without the list nothing is measured.
    pub(crate) async fn images(&mut self, list: &Path) -> anyhow::Result<()> {
        let Ok(text) = std::fs::read(list) else {
            eprintln!("skipped images: {} does not exist; run `make image` first", list.display());
            return Ok(());
        };
        let images: Vec<Image> = serde_json::from_slice(&text)?;
        for (name, size, start) in IMAGES {
            let Some(image) = images.iter().find(|image| image.name == name) else { continue };
            self.report.add_value(size, vec![mebibytes(image.bytes)]);
            let Some(start) = start else { continue };
            let mut rounds = Vec::new();
            for _ in 0..self.rounds(ROUNDS) {
                rounds.push(milliseconds(self.time_to_ready(&image.program).await?));
            }
            self.report.add_value(start, rounds);
        }
        Ok(())
    }

    async fn time_to_ready(&self, program: &Path) -> anyhow::Result<Duration> {
        let admin = free_address()?;
        let mut command = self.service(program, admin)?;
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("failed to start {}", program.display()))?;
        let ready = wait_until_ready(&mut child, admin, started).await;
        stop(&mut child);
        ready.with_context(|| program.display().to_string())
    }

    /// The command of a service with the database and stream of the system and its own addresses.
    fn service(&self, program: &Path, admin: SocketAddr) -> anyhow::Result<Command> {
        let run_file = &self.system.run_file;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("SVC_LISTEN", free_address()?.to_string())
            .env("SVC_LISTEN_INTERNAL", free_address()?.to_string())
            .env("SVC_LISTEN_ADMIN", admin.to_string())
            .env("SVC_DATABASE_URL", &run_file.database_url)
            .env("SVC_PLATFORM_TOKEN_FILE", &run_file.platform_token_file)
            .env("SVC_SERVICE_TOKEN", SERVICE_TOKEN)
            .env("SVC_LIMITER_KEY", LIMITER_KEY)
            .env("SVC_NATS_URL", &run_file.nats_url)
            .env("SVC_STREAM_REPLICAS", "1")
            .env("SVC_STREAM_MAX_BYTES", STREAM_BYTES)
            .env("SVC_NATS_DURABILITY", "dev")
            .stdout(Stdio::null());
        Ok(command)
    }
}

async fn wait_until_ready(
    child: &mut Child,
    admin: SocketAddr,
    started: Instant,
) -> anyhow::Result<Duration> {
    let readiness = request("GET", "/readyz", &[], b"");
    while started.elapsed() < TIMEOUT {
        // The connection fails until the program listens.
        if let Ok(mut connection) = Connection::open(admin).await
            && connection.exchange(&readiness).await?.status == 200
        {
            return Ok(started.elapsed());
        }
        ensure!(child.try_wait()?.is_none(), "the program exited");
        tokio::time::sleep(POLL).await;
    }
    bail!("the program is not ready after {TIMEOUT:?}")
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
