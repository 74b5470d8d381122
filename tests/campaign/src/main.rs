//! `campaign`: the binaries under load, while a schedule of faults kills, pauses and isolates their processes. It checks that
//! every acknowledged event is stored exactly once, byte for byte and under its tenant, that no response contradicts the history of a
//! person, and that each change is audited. docs/reliability.md describes the promises and the faults.

mod audit;
mod database;
mod faults;
mod findings;
mod http;
mod mails;
mod people;
mod producers;
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
use producers::{Producer, check_stream};
use system::System;

/// People of each tenant.
const PEOPLE: u64 = 6;

/// Run the system under load with a schedule of faults, and check that every promise is kept
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
    /// Run the schedule of this file as the only round
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Remove faults from the schedule of the file as long as a promise is still broken, and write the shorter one to this file
    #[arg(long, value_name = "FILE", requires = "schedule")]
    shrink: Option<PathBuf>,
    /// Directory for the results and for the schedules of rounds with a broken promise
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
    broken: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    std::fs::create_dir_all(&options.out)?;
    let rounds = match &options.schedule {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let schedule = serde_json::from_str(&text)?;
            match &options.shrink {
                Some(target) => vec![shrink(schedule, target).await?],
                None => vec![Campaign::start().await?.run(&schedule).await?],
            }
        }
        None => run_all(&options).await?,
    };
    std::fs::write(options.out.join("rounds.json"), serde_json::to_string_pretty(&rounds)?)?;
    let broken = rounds.iter().map(|round| round.broken.len()).sum::<usize>();
    let events = rounds.iter().map(|round| round.events).sum::<u64>();
    let faults = rounds.iter().map(|round| round.faults).sum::<usize>();
    println!(
        "{} rounds, {faults} faults, {events} acknowledged events, {broken} broken promises",
        rounds.len()
    );
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_all(options: &Options) -> anyhow::Result<Vec<Round>> {
    let seed = options.seed.unwrap_or_else(seed_of_time);
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    let mut campaign = Campaign::start().await?;
    let mut rounds = Vec::new();
    while rounds.is_empty() || Instant::now() < end {
        let schedule = Schedule::random(seed + rounds.len() as u64, options.round);
        let round = campaign.run(&schedule).await?;
        if !round.broken.is_empty() {
            let file = options.out.join(format!("schedule-{}.json", schedule.seed));
            std::fs::write(&file, serde_json::to_string_pretty(&schedule)?)?;
            println!("repeat this round: make campaign ARGS=\"--schedule {}\"", file.display());
        }
        rounds.push(round);
    }
    Ok(rounds)
}

#[expect(clippy::disallowed_methods, reason = "a different campaign each time")]
fn seed_of_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Removes faults, first halves of the schedule, then smaller parts, and keeps each shorter schedule that breaks a promise in a new system.
async fn shrink(mut schedule: Schedule, target: &PathBuf) -> anyhow::Result<Round> {
    let mut result = Campaign::start().await?.run(&schedule).await?;
    if result.broken.is_empty() {
        println!("the schedule broke no promise this time");
        return Ok(result);
    }
    let mut part = schedule.faults.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        while start < schedule.faults.len() {
            let mut shorter = schedule.clone();
            shorter.faults.drain(start..(start + part).min(shorter.faults.len()));
            let round = Campaign::start().await?.run(&shorter).await?;
            if round.broken.is_empty() {
                start += part;
            } else {
                (schedule, result) = (shorter, round);
                std::fs::write(target, serde_json::to_string_pretty(&schedule)?)?;
            }
        }
        part /= 2;
    }
    println!("{} faults break a promise: {}", schedule.faults.len(), target.display());
    Ok(result)
}

/// The system with its load.
struct Campaign {
    system: Arc<System>,
    tenants: Vec<Arc<Tenant>>,
    producers: Vec<Producer>,
    audit: Arc<AuditTrail>,
}

impl Campaign {
    async fn start() -> anyhow::Result<Self> {
        let mails = Arc::new(Mails::start().await?);
        let system = Arc::new(System::start(&mails).await?);
        let (mut tenants, mut producers, audit) = (Vec::new(), Vec::new(), Arc::new(AuditTrail::default()));
        for name in ["acme", "globex"] {
            let urls = system.ingest_urls();
            let tenant =
                Tenant::create(name, &system.base_url(), &urls, system.platform_token(), &audit, &mails)
                    .await;
            producers.extend(Producer::of_tenant(name, &tenant.create_key().await, &urls));
            tenants.push(tenant);
        }
        Ok(Self { system, tenants, producers, audit })
    }

    /// Runs a round: load and faults, recovery, checks.
    async fn run(&mut self, schedule: &Schedule) -> anyhow::Result<Round> {
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
            people.spawn(Arc::clone(tenant).run_people(seed, Arc::clone(&stop), Arc::clone(&findings)));
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
        check_stream(self.system.nats_url(), &self.producers, &findings).await?;
        self.audit.check(self.system.nats_url(), &findings).await?;
        let round = Round {
            seed: schedule.seed,
            seconds: schedule.seconds,
            faults: schedule.faults.len(),
            events: self.producers.iter().map(Producer::count).sum(),
            requests: findings.requests(),
            repeated_mails: findings.repeated_mails(),
            broken: findings.broken(),
        };
        println!(
            "seed {}: {} faults, {} events, {} requests with a response, {} without, {} broken promises",
            round.seed,
            round.faults,
            round.events,
            round.requests.answered,
            round.requests.unavailable,
            round.broken.len(),
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
