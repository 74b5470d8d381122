//! Starting a server until it answers, and starting it again whenever it dies.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::child::{LastWords, ServerProcess, Step};
use super::orphan;
use super::port::KeptPort;

/// After a crash Postgres may have a lot of log to replay.
const START_TIME: Duration = Duration::from_mins(2);
const PROBE_PAUSE: Duration = Duration::from_millis(50);
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);
const LAST_BACK_OFF: Duration = Duration::from_secs(10);
/// A server that lived so long has started well; its next death is a new story.
const STEADY: Duration = Duration::from_secs(30);

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// This process was asked to end meanwhile.
    #[error("asked to stop while starting")]
    Cancelled,
    /// It ended instead of answering.
    #[error("{server} ended ({how}) instead of starting; {last_words}")]
    Ended {
        /// The server.
        server: &'static str,
        /// Its exit status.
        how: String,
        /// The end of its log.
        last_words: LastWords,
    },
    /// It runs but does not answer.
    #[error("{server} runs but did not answer in {} s; {last_words}", START_TIME.as_secs())]
    Silent {
        /// The server.
        server: &'static str,
        /// The end of its log.
        last_words: LastWords,
    },
    /// Something around it failed.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The roles and schemas could not be made.
    #[error("cannot make the roles and schemas of the services")]
    Bootstrap(#[source] sqlx::Error),
    /// The data cannot be used by this Postgres.
    #[error("{0}")]
    Unusable(String),
}

impl StartError {
    /// For `map_err`: says what was being done.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// A kind of server.
pub(super) trait Server: Send + Sync + 'static {
    /// What people call it.
    const NAME: &'static str;
    /// How it is asked to end.
    const STOP: &'static [Step];

    /// The command that runs it in the foreground.
    fn command(&self) -> Command;
    /// The file for what it writes.
    fn log(&self) -> &Path;
    /// The file in which it keeps its process id.
    fn pid_file(&self) -> PathBuf;
    /// A text that stands in its command line and in no other's.
    fn mark(&self) -> &str;
    /// The port that it listens on.
    fn port(&self) -> &KeptPort;
    /// Whether it does its work now, tried out.
    fn answers(&self) -> impl Future<Output = bool> + Send;
}

/// A server that answers, and its process.
pub(super) struct Started<S> {
    pub(super) server: Arc<S>,
    process: ServerProcess,
}

impl<S: Server> Started<S> {
    pub(super) fn pid(&self) -> i32 {
        self.process.pid().as_raw_pid()
    }

    pub(super) async fn stop(self) {
        self.process.stop(S::STOP).await;
    }
}

/// Starts a server for the first time. A port that somebody else was quicker to take is changed for another.
pub(super) async fn start<S: Server>(
    server: S,
    cancel: &CancellationToken,
) -> Result<Started<S>, StartError> {
    let mut tries = 5;
    loop {
        tries -= 1;
        match launch(&server, cancel).await {
            Ok(process) => {
                return Ok(Started { server: Arc::new(server), process });
            }
            Err(StartError::Ended { .. }) if tries > 0 && server.port().is_taken() => {
                server.port().change().map_err(StartError::io("finding a free port"))?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Watches a server until `stop`, and stops it then. When it dies before, it is started again on its port and data, and
/// `tell` gets the new process id.
pub(super) async fn supervise<S: Server>(started: Started<S>, stop: CancellationToken, tell: impl Fn(i32)) {
    let Started { server, mut process } = started;
    let mut back_off = FIRST_BACK_OFF;
    loop {
        let since = Instant::now();
        tokio::select! {
            () = stop.cancelled() => return process.stop(S::STOP).await,
            status = process.ended() => {
                tracing::warn!(server = S::NAME, status = ?status.ok(), "a server died and is started again");
            }
        }
        if since.elapsed() > STEADY {
            back_off = FIRST_BACK_OFF;
        }
        process = match relaunch(&*server, &stop, &mut back_off).await {
            Some(process) => process,
            None => return,
        };
        tell(process.pid().as_raw_pid());
        tracing::info!(server = S::NAME, pid = process.pid().as_raw_pid(), "the server answers again");
    }
}

/// Tries until the server answers; `None` once it shall stop.
async fn relaunch<S: Server>(
    server: &S,
    stop: &CancellationToken,
    back_off: &mut Duration,
) -> Option<ServerProcess> {
    loop {
        stop.run_until_cancelled(tokio::time::sleep(*back_off)).await?;
        *back_off = (*back_off * 2).min(LAST_BACK_OFF);
        match launch(server, stop).await {
            Ok(process) => return Some(process),
            Err(StartError::Cancelled) => return None,
            Err(error) => tracing::warn!(server = S::NAME, %error, "a server does not start; trying again"),
        }
    }
}

/// Starts the process and waits until it answers; on any fault nothing is left running.
async fn launch<S: Server>(server: &S, cancel: &CancellationToken) -> Result<ServerProcess, StartError> {
    orphan::clear(&server.pid_file(), server.mark(), S::STOP)
        .await
        .map_err(StartError::io(format!("stopping the {} of an earlier run", S::NAME)))?;
    let mut process = ServerProcess::spawn(server.command(), server.log())
        .map_err(StartError::io(format!("starting {}", S::NAME)))?;
    let fault = tokio::select! {
        () = cancel.cancelled() => StartError::Cancelled,
        status = process.ended() => {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            StartError::Ended { server: S::NAME, how, last_words: process.last_words() }
        }
        answer = tokio::time::timeout(START_TIME, until_it_answers(server)) => {
            if answer.is_ok() {
                return Ok(process);
            }
            StartError::Silent { server: S::NAME, last_words: process.last_words() }
        }
    };
    process.stop(S::STOP).await;
    Err(fault)
}

async fn until_it_answers<S: Server>(server: &S) {
    while !server.answers().await {
        tokio::time::sleep(PROBE_PAUSE).await;
    }
}
