//! The images that `make image` made: how large each is, and how long its program takes until it may get requests, next
//! to a database and a broker that are there already.

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
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(1);
const LIMITER_KEY: &str = "a-limiter-key-for-figures-of-32-or-more";
/// What the services show each other; nobody asks here.
const SERVICE_TOKEN: &str = "a-service-token-for-the-bench-of-32-or-more";

/// Image, and how its figures are called.
const FIGURES: [(&str, &str, Option<&str>); 4] = [
    ("svc-identity", "image svc-identity, MiB", Some("  from start to ready, ms")),
    ("svc-session", "image svc-session, MiB", Some("  from start to ready, ms")),
    ("svc-ingest", "image svc-ingest, MiB", Some("  from start to ready, ms")),
    ("svc", "image svc, MiB", None),
];

/// An image as deploy/image.py lists it.
#[derive(Deserialize)]
struct Image {
    name: String,
    bytes: u64,
    program: PathBuf,
}

impl Bench<'_> {
    /// Measures the images of this list; without one there is nothing to measure.
    pub(crate) async fn images(&mut self, list: &Path) -> anyhow::Result<()> {
        let Ok(text) = std::fs::read(list) else {
            eprintln!("no images are measured: `make image` makes them");
            return Ok(());
        };
        let images: Vec<Image> = serde_json::from_slice(&text)?;
        for (name, size, start) in FIGURES {
            let Some(image) = images.iter().find(|image| image.name == name) else { continue };
            self.report.add_alone(size, vec![mebibytes(image.bytes)]);
            let Some(start) = start else { continue };
            let mut rounds = Vec::new();
            for _ in 0..self.rounds(ROUNDS) {
                rounds.push(milliseconds(self.time_to_ready(&image.program).await?));
            }
            self.report.add_alone(start, rounds);
        }
        Ok(())
    }

    async fn time_to_ready(&self, program: &Path) -> anyhow::Result<Duration> {
        let admin = free_address()?;
        let mut command = self.service(program, admin)?;
        let begun = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        let ready = until_ready(&mut child, admin, begun).await;
        stop(&mut child);
        ready.with_context(|| program.display().to_string())
    }

    /// A service over the system's own database and stream, at addresses of its own.
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

async fn until_ready(child: &mut Child, admin: SocketAddr, begun: Instant) -> anyhow::Result<Duration> {
    let ask = request("GET", "/readyz", &[], b"");
    while begun.elapsed() < PATIENCE {
        // It does not listen at once.
        if let Ok(mut connection) = Connection::open(admin).await
            && connection.exchange(&ask).await?.status == 200
        {
            return Ok(begun.elapsed());
        }
        ensure!(child.try_wait()?.is_none(), "it ended by itself");
        tokio::time::sleep(POLL).await;
    }
    bail!("it is not ready after {PATIENCE:?}")
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
