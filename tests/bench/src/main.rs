//! `bench`: how fast the running system is, beside the best that the same machine does in the same minutes.
//!
//! Machines differ and are noisy, so each figure is measured in rounds that alternate with rounds of its limit; what counts
//! is the ratio. Client, services, broker and database share the cores. Nothing passes or fails.

mod events;
mod figures;
mod floor;
mod http;
mod likeness;
mod load;
mod person;
mod process;
mod raw;
mod report;
mod sessions;
mod system;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};

use figures::Bench;
use report::Report;
use system::System;

/// Measures the running system, each figure beside a limit of the same machine.
#[derive(Debug, Parser)]
struct Options {
    /// The program to measure; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    standalone: Option<PathBuf>,
    /// File that says where the servers' programs are, made by deploy/local/fetch.py
    #[arg(long, value_name = "FILE", default_value = ".dev/tools.json")]
    tools: PathBuf,
    /// The images to measure, as `make image` lists them
    #[arg(long, value_name = "FILE", default_value = "target/images/images.json")]
    images: PathBuf,
    /// Where the figures are written for programs; the data lie beside it while it runs
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    out: PathBuf,
    /// Measure only these
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "FIGURE",
        default_value = "images,logins,checks,refusals,credentials,batch,single"
    )]
    only: Vec<Figure>,
    /// Measure each so often; without it, as often as fits into four minutes
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Sizes of the images, and how long their programs take to start
    Images,
    /// Logins a second
    Logins,
    /// Session checks: how many, how long, and how long while many log in
    Checks,
    /// Whether the time of a refusal tells who has an account
    Refusals,
    /// Checks of credentials: looked up, remembered and revoked
    Credentials,
    /// Events a second in batches
    Batch,
    /// Events a second one by one
    Single,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    tokio::select! {
        done = run(&options) => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("stopped"),
    }
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let program = match &options.standalone {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("svc-standalone"),
    };
    let out = std::path::absolute(&options.out)?;
    let place = out.parent().context("the file has a directory")?;
    std::fs::create_dir_all(place)?;
    let system = System::start(&program, &options.tools, place).await?;
    let mut report = Report::default();
    measure(options, &system, &mut report).await?;
    drop(system);
    report.write(&out)?;
    report.print()?;
    Ok(())
}

/// Memory first: its base is taken before the first password was hashed.
async fn measure(options: &Options, system: &System, report: &mut Report) -> anyhow::Result<()> {
    let base = process::resident(system.pid());
    let person = person::first_admin(system).await?;
    let members = person.invite_members(system).await?;
    let mut bench = Bench { system, person, members, rounds: options.rounds, base, known_events: 0, report };
    for figure in [
        Figure::Images,
        Figure::Logins,
        Figure::Checks,
        Figure::Refusals,
        Figure::Credentials,
        Figure::Batch,
        Figure::Single,
    ] {
        if options.only.contains(&figure) {
            match figure {
                Figure::Images => bench.images(&options.images).await?,
                Figure::Logins => bench.logins().await?,
                Figure::Checks => bench.checks().await?,
                Figure::Refusals => bench.refusals().await?,
                Figure::Credentials => bench.credentials().await?,
                Figure::Batch => bench.batch().await?,
                Figure::Single => bench.single().await?,
            }
        }
    }
    Ok(())
}
