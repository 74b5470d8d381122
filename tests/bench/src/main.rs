//! `bench`: compares the running system with the limits of the same machine.
//!
//! Each round of a measurement alternates with a round of its baseline, because machines differ and have other load: the ratio
//! is what matters. Client, services, broker and database share the cores. The benchmark has no pass or fail.

mod events;
mod http;
mod load;
mod measurements;
mod process;
mod report;
mod sessions;
mod statistics;
mod system;
mod user;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};

use measurements::Bench;
use report::Report;
use system::{LARGE_STREAM, Launcher, System};

/// File that contains 1 if the kernel divides CPU time between autogroups (`setsid`). Each Postgres process has its own autogroup.
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Compare the running system with the limits of this machine
#[derive(Debug, Parser)]
struct Options {
    /// Program to measure [default: svc-standalone in the directory of this program]
    #[arg(long, value_name = "FILE")]
    standalone: Option<PathBuf>,
    /// File with the paths of the server programs, written by deploy/local/fetch.py
    #[arg(long, value_name = "FILE", default_value = ".dev/tools.json")]
    tools: PathBuf,
    /// List of the images to measure, written by `make image`
    #[arg(long, value_name = "FILE", default_value = "target/images/images.json")]
    images: PathBuf,
    /// File for the results in JSON; the temporary data are in its directory
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    out: PathBuf,
    /// Markdown file in which the table is replaced, such as docs/performance.md
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Run only these measurements
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MEASUREMENT",
        default_value = "images,logins,logins-with-code,session-checks,timing,credentials,scale,batch-events,quarantine,spellings,polls,single-events,linger,send-command,sustained,waiting-events,many-tenants,invented-types,tenant-bursts,relay,tail,reading,strict,replicas,connections"
    )]
    only: Vec<Measurement>,
    /// Number of rounds of each measurement [default: as many as fit into ten minutes]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Image sizes and start times
    Images,
    /// Logins per second
    Logins,
    /// Logins with a code per second
    LoginsWithCode,
    /// Session checks: rate, latency, and latency during logins
    SessionChecks,
    /// Whether response times reveal which accounts exist
    Timing,
    /// Credential checks: lookup, cache and revocation
    Credentials,
    /// Many logins in one tenant, rate limits, a million sessions
    Scale,
    /// Events per second in batches
    BatchEvents,
    /// Events per second in batches with 1 % invalid events
    Quarantine,
    /// Events in batches with names in camelCase and in `snake_case`
    Spellings,
    /// The longest poll of a task during a batch of events
    Polls,
    /// Single events per second
    SingleEvents,
    /// Concurrent sends of the transport library with and without linger
    Linger,
    /// `svc events send` of a million events
    SendCommand,
    /// Three minutes of batches with limits and quotas: rate, memory, latency at half the rate
    Sustained,
    /// Memory of events that wait for the broker
    WaitingEvents,
    /// The broker with many tenants and sources
    ManyTenants,
    /// Events of a tenant while another one with 200,000 event types opens readers
    InventedTypes,
    /// Requests to identity and session during a burst of another tenant
    TenantBursts,
    /// Audit events per second from the outbox to the broker
    Relay,
    /// Time until a reader of `/events/stream` has an event
    Tail,
    /// Events per second that a consumer reads
    Reading,
    /// Durability `strict` with synchronized writes
    Strict,
    /// Three servers with three replicas
    Replicas,
    /// Memory of 10,000 connections that do not complete their requests
    Connections,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    tokio::select! {
        result = run(&options) => result,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let program = match &options.standalone {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("svc-standalone"),
    };
    let out = std::path::absolute(&options.out)?;
    let directory = out.parent().context("--out has no directory")?;
    std::fs::create_dir_all(directory)?;
    let launcher = Launcher { program: &program, tools: &options.tools, parent: directory };
    let system = launcher.start(&LARGE_STREAM).await?;
    let mut report = Report::default();
    let svc = program.with_file_name("svc");
    let measured = measure(options, &launcher, &system, &svc, &mut report).await;
    drop(system);
    // Also after an error: the results so far took many minutes.
    report.write(&out)?;
    report.print()?;
    if std::fs::read_to_string(AUTOGROUP).is_ok_and(|value| value.trim() == "1") {
        eprintln!(
            "note: kernel.sched_autogroup_enabled is 1, so session checks wait longer during logins than in containers (docs/running.md)"
        );
    }
    measured?;
    options.document.as_deref().map_or(Ok(()), |file| report.write_into(file))
}

async fn measure(
    options: &Options,
    launcher: &Launcher<'_>,
    system: &System,
    svc: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    // Before the first password hash.
    let idle_bytes = process::resident_bytes(system.pid());
    let user = user::first_admin(system).await?;
    let members = user.invite_members(system).await?;
    let mut bench = Bench { system, user, members, rounds: options.rounds, idle_bytes, report };
    let all = Measurement::value_variants().iter();
    let selected: Vec<_> = all.filter(|measurement| options.only.contains(measurement)).collect();
    for (number, measurement) in selected.iter().enumerate() {
        let value = measurement.to_possible_value();
        let name = value.as_ref().map_or("", clap::builder::PossibleValue::get_name);
        eprintln!("{} of {}: {name}", number + 1, selected.len());
        match measurement {
            Measurement::Images => bench.images(&options.images).await?,
            Measurement::Logins => bench.login_rate().await?,
            Measurement::LoginsWithCode => bench.logins_with_code().await?,
            Measurement::SessionChecks => bench.session_checks().await?,
            Measurement::Timing => bench.response_times().await?,
            Measurement::Credentials => bench.credentials().await?,
            Measurement::Scale => bench.scale(launcher).await?,
            Measurement::BatchEvents => bench.batch_events().await?,
            Measurement::Quarantine => bench.quarantine().await?,
            Measurement::Spellings => bench.spellings().await?,
            Measurement::Polls => bench.polls().await?,
            Measurement::SingleEvents => bench.single_events().await?,
            Measurement::Linger => bench.linger().await?,
            Measurement::SendCommand => bench.send_command(svc).await?,
            Measurement::Sustained => bench.sustained().await?,
            Measurement::WaitingEvents => bench.waiting_events().await?,
            Measurement::ManyTenants => bench.many_tenants().await?,
            Measurement::InventedTypes => bench.invented_types(launcher).await?,
            Measurement::TenantBursts => bench.tenant_bursts().await?,
            Measurement::Relay => bench.relay().await?,
            Measurement::Tail => bench.tail().await?,
            Measurement::Reading => bench.reading().await?,
            Measurement::Strict => bench.strict().await?,
            Measurement::Replicas => bench.replicas().await?,
            Measurement::Connections => bench.connections().await?,
        }
    }
    Ok(())
}
