//! The images of `make image`: their size, the time from the start of a program to readiness with a running database and broker, and
//! its memory then, and its CPU time without requests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::{Bench, mebibytes, milliseconds};
use crate::http::{Connection, request};
use crate::process::{cpu_time, resident_bytes};
use crate::system::{LARGE_STREAM, stop};

const ROUNDS: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(30);
/// A service without requests is measured for this time, after it has settled.
const IDLE: Duration = Duration::from_secs(20);
const SETTLING: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);
const LIMITER_KEY: &str = "a-limiter-key-for-the-bench-of-32-or-more";
/// Required by the configuration; no request uses it.
const SERVICE_TOKEN: &str = "a-service-token-for-the-bench-of-32-or-more";

/// Images and the names of their measurements.
const IMAGES: [(&str, &str); 4] = [
    ("svc-identity", "size of image svc-identity, MB"),
    ("svc-session", "size of image svc-session, MB"),
    ("svc-ingest", "size of image svc-ingest, MB"),
    (CLIENT, "size of image svc, MB"),
];
/// The image of the command line, which is not a service.
const CLIENT: &str = "svc";

/// An entry of the list that `deploy/image.py` writes.
#[derive(Deserialize)]
struct Image {
    name: String,
    bytes: u64,
    program: PathBuf,
}

/// A running service. It stops when dropped.
struct Service(Child);

impl Service {
    /// Milliseconds of CPU time per second, after the work of the start.
    async fn idle_time(&mut self) -> f64 {
        tokio::time::sleep(SETTLING).await;
        let before = cpu_time(self.0.id());
        tokio::time::sleep(IDLE).await;
        milliseconds(cpu_time(self.0.id()).saturating_sub(before)) / IDLE.as_secs_f64()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        stop(&mut self.0);
    }
}

impl Bench<'_> {
    /// Measures the images in the list. Without the list nothing is measured.
    pub(crate) async fn images(&mut self, list: &Path) -> anyhow::Result<()> {
        let Ok(text) = std::fs::read(list) else {
            eprintln!("skipped images: {} does not exist; run `make image` first", list.display());
            return Ok(());
        };
        let images: Vec<Image> = serde_json::from_slice(&text)?;
        for (name, size) in IMAGES {
            let Some(image) = images.iter().find(|image| image.name == name) else { continue };
            self.report.add_value(size, vec![megabytes(image.bytes)]);
            if name == CLIENT {
                continue;
            }
            let (mut times, mut memory, mut idle) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..self.rounds(ROUNDS) {
                let started = Instant::now();
                let mut service = self.start(&image.program, started).await?;
                times.push(milliseconds(started.elapsed()));
                memory.push(mebibytes(resident_bytes(service.0.id())));
                if round == 0 {
                    idle.push(service.idle_time().await);
                }
            }
            self.report.add_value("  start until ready, ms", times);
            self.report.add_value("  memory when ready, MiB", memory);
            self.report.add_value("  CPU time per second without requests, ms", idle);
        }
        Ok(())
    }

    /// Starts the program. Returns it when it is ready.
    async fn start(&self, program: &Path, started: Instant) -> anyhow::Result<Service> {
        let admin = free_address()?;
        let mut command = self.service(program, admin)?;
        let child = command.spawn().with_context(|| format!("failed to start {}", program.display()))?;
        let mut service = Service(child);
        let ready = wait_until_ready(&mut service.0, admin, started).await;
        ready.with_context(|| program.display().to_string())?;
        Ok(service)
    }

    /// The command of a service with the database and stream of the system and its own addresses.
    fn service(&self, program: &Path, admin: SocketAddr) -> anyhow::Result<Command> {
        let run_file = &self.system.run_file;
        // Each is an administrator of the streams that the service uses.
        let is_ingest = program.ends_with("svc-ingest");
        let nats_url = if is_ingest { &run_file.nats_url } else { &run_file.audit_nats_url };
        // Row-level security does not apply to the superuser, so a service is not ready with it.
        let name = program.file_name().context("a path without a file name")?;
        let role = name.to_string_lossy().replace('-', "_");
        let database_url = format!("{}?options[role]={role}", run_file.database_url);
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("SVC_LISTEN", free_address()?.to_string())
            .env("SVC_LISTEN_INTERNAL", free_address()?.to_string())
            .env("SVC_LISTEN_ADMIN", admin.to_string())
            .env("SVC_DATABASE_URL", database_url)
            .env("SVC_PLATFORM_TOKEN_FILE", &run_file.platform_token_file)
            .env("SVC_SERVICE_TOKEN", SERVICE_TOKEN)
            .env("SVC_LIMITER_KEY", LIMITER_KEY)
            .env("SVC_NATS_URL", nats_url)
            .env("SVC_STREAM_REPLICAS", "1")
            .envs(LARGE_STREAM)
            .env("SVC_NATS_DURABILITY", "dev")
            .stdout(Stdio::null());
        Ok(command)
    }
}

/// As registries and the tools for images print sizes.
fn megabytes(bytes: u64) -> f64 {
    mebibytes(bytes) * 1.048_576
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
