//! `campaign`: the binaries under load, while a schedule of faults kills, pauses and isolates their processes. It checks that
//! every acknowledged event is stored exactly once, byte for byte and under its tenant, that no response contradicts the history of a
//! person, and that each change is audited. docs/reliability.md describes the guarantees and the faults.

mod audit;
mod factors;
mod faults;
mod findings;
mod http;
mod mails;
mod people;
mod producers;
mod resources;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Parser;
use futures::future::try_join_all;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use audit::AuditTrail;
use faults::Schedule;
use findings::{Findings, Requests};
use mails::Mails;
use people::Tenant;
use producers::{Load, Producer, check_stream};
use resources::Values;
use system::System;

/// People of each tenant.
const PEOPLE: u64 = 6;

/// Run the system under load with a schedule of faults, and check that every guarantee is kept
#[derive(Debug, Parser)]
struct Options {
    /// Seed of the first round; each further round uses the next number [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Duration of the campaign in minutes
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Seconds of load and faults in a round
    #[arg(long, value_name = "N", default_value_t = 60)]
    round: u64,
    /// Run without faults and with pauses between requests, and compare resource usage and latencies at the start and at the end
    #[arg(long, conflicts_with = "schedule")]
    steady: bool,
    /// Run the schedule of this file as the only round
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Remove faults from the schedule of the file as long as a guarantee is still violated, and write the shorter one to this file
    #[arg(long, value_name = "FILE", requires = "schedule")]
    shrink: Option<PathBuf>,
    /// Directory for the results and for the schedules of rounds with a violation
    #[arg(long, value_name = "DIRECTORY", default_value = "target/campaign")]
    out: PathBuf,
}

/// The result of a round.
#[derive(Debug, Serialize)]
struct Round {
    seed: u64,
    seconds: u64,
    faults: usize,
    events: u64,
    requests: Requests,
    /// Mails that were delivered again after a fault.
    repeated_mails: u64,
    violations: Vec<String>,
    /// Resource usage of each process after the round, and latencies of the round.
    resources: Values,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    std::fs::create_dir_all(&options.out)?;
    let rounds = match &options.schedule {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let schedule = serde_json::from_str(&text)?;
            if let Some(target) = &options.shrink {
                vec![shrink(schedule, target).await?]
            } else {
                let mut campaign = Campaign::start(Load::Full).await?;
                let round = campaign.run(&schedule, true).await?;
                campaign.system.copy_output(&options.out.join("output"))?;
                vec![round]
            }
        }
        None => run_all(&options).await?,
    };
    std::fs::write(options.out.join("rounds.json"), serde_json::to_string_pretty(&rounds)?)?;
    let violations = rounds.iter().map(|round| round.violations.len()).sum::<usize>();
    let events = rounds.iter().map(|round| round.events).sum::<u64>();
    let faults = rounds.iter().map(|round| round.faults).sum::<usize>();
    if options.steady {
        let resources: Vec<_> = rounds.iter().map(|round| round.resources.clone()).collect();
        print!("{}", resources::table(&resources));
    }
    println!(
        "{} rounds, {faults} faults, {events} acknowledged events, {violations} violations",
        rounds.len()
    );
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_all(options: &Options) -> anyhow::Result<Vec<Round>> {
    let seed = options.seed.unwrap_or_else(seed_of_time);
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    let mut campaign = Campaign::start(if options.steady { Load::Half } else { Load::Full }).await?;
    let mut rounds = Vec::new();
    while rounds.is_empty() || Instant::now() < end {
        let mut schedule = Schedule::random(seed + rounds.len() as u64, options.round);
        if options.steady {
            schedule.faults.clear();
        }
        let at_end = Instant::now() + Duration::from_secs(options.round) >= end;
        let round = campaign.run(&schedule, at_end).await?;
        if !round.violations.is_empty() {
            let file = options.out.join(format!("schedule-{}.json", schedule.seed));
            std::fs::write(&file, serde_json::to_string_pretty(&schedule)?)?;
            println!("repeat this round: make campaign ARGS=\"--schedule {}\"", file.display());
            campaign.system.copy_output(&file.with_extension("output"))?;
        }
        rounds.push(round);
    }
    Ok(rounds)
}

#[expect(clippy::disallowed_methods, reason = "a different campaign each time")]
fn seed_of_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Removes faults, first halves of the schedule, then smaller parts, and keeps each shorter schedule that violates a guarantee
/// in a new system.
async fn shrink(mut schedule: Schedule, target: &PathBuf) -> anyhow::Result<Round> {
    let mut result = Campaign::start(Load::Full).await?.run(&schedule, true).await?;
    if result.violations.is_empty() {
        println!("the schedule violated no guarantee this time");
        return Ok(result);
    }
    let mut part = schedule.faults.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        while start < schedule.faults.len() {
            let mut shorter = schedule.clone();
            shorter.faults.drain(start..(start + part).min(shorter.faults.len()));
            if shorter.faults.is_empty() {
                break;
            }
            let round = Campaign::start(Load::Full).await?.run(&shorter, true).await?;
            println!(
                "{} of {} faults: {} violations",
                shorter.faults.len(),
                schedule.faults.len(),
                round.violations.len()
            );
            if round.violations.is_empty() {
                start += part;
            } else {
                (schedule, result) = (shorter, round);
                std::fs::write(target, serde_json::to_string_pretty(&schedule)?)?;
            }
        }
        part /= 2;
    }
    println!("faults that are left: {}, in {}", schedule.faults.len(), target.display());
    Ok(result)
}

/// The system with its load.
struct Campaign {
    system: Arc<System>,
    tenants: Vec<Arc<Tenant>>,
    producers: Vec<Producer>,
    audit: Arc<AuditTrail>,
    load: Load,
}

impl Campaign {
    async fn start(load: Load) -> anyhow::Result<Self> {
        let mails = Arc::new(Mails::start().await?);
        let system = Arc::new(System::start(&mails).await?);
        let (mut tenants, mut producers, audit) = (Vec::new(), Vec::new(), Arc::new(AuditTrail::default()));
        for name in ["acme", "globex"] {
            let urls = system.ingest_urls();
            let tenant =
                Tenant::create(name, &system.base_url(), &urls, system.platform_token(), &audit, &mails)
                    .await;
            producers.extend(Producer::of_tenant(name, &tenant.create_key().await, &urls, load));
            tenants.push(tenant);
        }
        Ok(Self { system, tenants, producers, audit, load })
    }

    /// Runs a round: load and faults, recovery, checks. After the last round, late audit events are awaited.
    async fn run(&mut self, schedule: &Schedule, at_end: bool) -> anyhow::Result<Round> {
        let (stop, findings) = (Arc::new(AtomicBool::new(false)), Arc::new(Findings::default()));
        let mut running = JoinSet::new();
        for producer in self.producers.drain(..) {
            running.spawn(producer.run(Arc::clone(&stop), Arc::clone(&findings)));
        }
        let mut people = JoinSet::new();
        for (number, tenant) in
            (0..PEOPLE).flat_map(|number| self.tenants.iter().map(move |tenant| (number, tenant)))
        {
            let seed = schedule.seed.wrapping_mul(1000) + number;
            let (stop, findings) = (Arc::clone(&stop), Arc::clone(&findings));
            people.spawn(Arc::clone(tenant).run_people(seed, stop, findings, self.load));
        }
        self.disturb(schedule).await?;
        self.system.wait_until_ready().await;
        stop.store(true, Relaxed);
        while let Some(person) = people.join_next().await {
            person?;
        }
        while let Some(producer) = running.join_next().await {
            self.producers.push(producer?);
        }
        self.system.wait_until_ready().await;
        check_stream(&self.system.nats_url("administrator"), &self.producers, &findings).await?;
        self.audit.permit_lateness(schedule.clock_ahead());
        self.audit.check(&self.system.nats_url("audit-administrator"), at_end, &findings).await?;
        let mut resources = self.system.resources().await?;
        for (kind, times) in findings.take_times() {
            resources::add_latency(&mut resources, &kind, times);
        }
        let round = Round {
            seed: schedule.seed,
            seconds: schedule.seconds,
            faults: schedule.faults.len(),
            events: self.producers.iter().map(Producer::count).sum(),
            requests: findings.requests(),
            repeated_mails: findings.repeated_mails(),
            violations: findings.violations(),
            resources,
        };
        println!(
            "seed {}: {} faults, {} events, {} requests with a response, {} without, {} violations",
            round.seed,
            round.faults,
            round.events,
            round.requests.answered,
            round.requests.unavailable,
            round.violations.len(),
        );
        Ok(round)
    }

    /// Executes the faults of each target in their order, and waits until the round ends.
    async fn disturb(&self, schedule: &Schedule) -> anyhow::Result<()> {
        let start = tokio::time::Instant::now();
        let targets = schedule.by_target().into_values().map(async |faults| {
            for fault in faults {
                sleep_until(start + Duration::from_millis(fault.at)).await;
                self.system.apply(&fault).await.with_context(|| format!("{fault:?}"))?;
            }
            Ok::<_, anyhow::Error>(())
        });
        try_join_all(targets).await?;
        sleep_until(start + Duration::from_secs(schedule.seconds)).await;
        Ok(())
    }
}
