//! `svc-identity breach-set`: builds the file for `SVC_BREACH_FILE`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use service::process::CommandResult;

use crate::breach_set::{BreachSet, build};

const BUFFER: usize = 1 << 20;
/// Interval between progress updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes between two reads of the clock, so that progress costs nothing per line.
const BYTES_PER_CLOCK_READ: u64 = 1 << 20;

/// Subcommands of `svc-identity breach-set`.
#[derive(Debug, clap::Subcommand)]
pub enum BreachSetCommand {
    /// Build a breach set from a Have I Been Pwned download
    ///
    /// Use the download of SHA-1 hashes, sorted by hash, as one file (about 40 GB). It is read as a stream. The breach set has
    /// 8 bytes per password. An existing file is replaced when the new one is complete.
    Build {
        /// The download: lines `SHA1:COUNT`; `-` for standard input
        #[arg(long, value_name = "FILE|-")]
        from: PathBuf,
        /// The breach set file to write
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
}

impl BreachSetCommand {
    /// Runs the subcommand.
    pub fn execute(self) -> CommandResult {
        let Self::Build { from, to } = self;
        let count = try_build(&from, &to)
            .map_err(|error| format!("{}: {}", from.display(), service::chain(&*error)))?;
        eprintln!("{}: {count} passwords", to.display());
        Ok(ExitCode::SUCCESS)
    }
}

fn try_build(from: &Path, to: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let (source, size): (Box<dyn BufRead>, _) = if from == Path::new("-") {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file = File::open(from)?;
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
        (Box::new(BufReader::with_capacity(BUFFER, file)), size)
    };
    let mut progress = Progress::new(size);
    let built = build(source, to, |bytes| progress.advance(bytes));
    progress.clear();
    built?;
    // Opened as the service opens it, so that an unusable file is reported here.
    Ok(BreachSet::open(to)?.count())
}

/// A progress line on a terminal, erased at the end.
struct Progress {
    size: Option<u64>,
    done: u64,
    clock_read_at: u64,
    updated: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    fn new(size: Option<u64>) -> Self {
        Self { size, done: 0, clock_read_at: 0, updated: None, is_terminal: io::stderr().is_terminal() }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if !self.is_terminal || self.done - self.clock_read_at < BYTES_PER_CLOCK_READ {
            return;
        }
        self.clock_read_at = self.done;
        if self.updated.is_none_or(|at| at.elapsed() >= UPDATE_INTERVAL) {
            self.updated = Some(Instant::now());
            let percent =
                self.size.map(|size| format!(", {} %", self.done * 100 / size.max(1))).unwrap_or_default();
            write_line(&format!("{} MB read{percent}", self.done / 1_000_000));
        }
    }

    fn clear(&self) {
        if self.updated.is_some() {
            write_line("");
        }
    }
}

/// Replaces the progress line. An error means that the terminal is closed, and is ignored.
fn write_line(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
}
