//! `svc-identity breach-set`: makes the file that `SVC_BREACH_FILE` names.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::breach_set::{BreachSet, build};

const BUFFER: usize = 1 << 20;
/// Often enough to look alive, log_throttle enough to cost nothing.
const PAINT_EVERY: Duration = Duration::from_millis(200);
const ASK_EVERY: u64 = 1 << 20;

/// The subcommands.
#[derive(Debug, clap::Subcommand)]
pub enum BreachSetCommand {
    /// Make it from a download of Have I Been Pwned
    ///
    /// The download is the one of SHA-1 hashes, ordered by hash, as one file (some 40 GB); it is read once, in little memory.
    /// The set takes 8 bytes a password. What was at its place is replaced when the new one is whole.
    Build {
        /// The download: lines `SHA1:COUNT`; `-` is standard input
        #[arg(long, value_name = "FILE|-")]
        from: PathBuf,
        /// Where the set goes
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
}

impl BreachSetCommand {
    /// Carries it out.
    pub fn execute(self) -> ExitCode {
        let Self::Build { from, to } = self;
        match try_build(&from, &to) {
            Ok(count) => {
                eprintln!("{}: {count} passwords", to.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("svc-identity: {}: {}", from.display(), service::chain(&*error));
                ExitCode::FAILURE
            }
        }
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
    // Read as the service will read it.
    Ok(BreachSet::open(to)?.count())
}

/// A line on the terminal that is painted over itself and leaves nothing behind.
struct Progress {
    size: Option<u64>,
    done: u64,
    asked: u64,
    painted: Option<Instant>,
    paints: bool,
}

impl Progress {
    fn new(size: Option<u64>) -> Self {
        Self { size, done: 0, asked: 0, painted: None, paints: io::stderr().is_terminal() }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if !self.paints || self.done - self.asked < ASK_EVERY {
            return;
        }
        self.asked = self.done;
        if self.painted.is_none_or(|at| at.elapsed() >= PAINT_EVERY) {
            self.painted = Some(Instant::now());
            let share =
                self.size.map(|size| format!(", {} %", self.done * 100 / size.max(1))).unwrap_or_default();
            paint(&format!("{} MB read{share}", self.done / 1_000_000));
        }
    }

    fn clear(&self) {
        if self.painted.is_some() {
            paint("");
        }
    }
}

/// Where painting fails, there is nobody left to look.
fn paint(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
}
