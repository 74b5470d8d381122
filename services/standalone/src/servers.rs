//! A private Postgres and nats-server as children of this process: started, watched, started again when they die, and
//! stopped with it. Their data lie below one directory, their ports stay the same as long as nobody else takes them.

mod account;
mod child;
mod nats;
mod orphan;
mod port;
mod postgres;
mod server;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Tools;
use crate::data_dir::DataDir;

pub use account::Account;
pub use child::LastWords;
pub use nats::NatsUser;
pub use postgres::{Durability, Role};
pub use server::StartError;

use nats::Nats;
use postgres::Postgres;
use server::{Started, start, supervise};

/// The process ids of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pids {
    /// Postgres' first process.
    pub postgres: i32,
    /// The broker.
    pub nats: i32,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct ServersConfig {
    /// The programs.
    pub tools: Tools,
    /// Where data, logs and secrets lie. The caller holds its lock.
    pub data: DataDir,
    /// Whether data survive the machine.
    pub durability: Durability,
    /// Who Postgres runs as; chosen when not given.
    pub account: Option<Account>,
}

/// Both servers, answering. Dropped, it lets go of them, and they are stopped in the background.
pub struct Servers {
    postgres: Arc<Postgres>,
    nats: Arc<Nats>,
    pids: watch::Receiver<Pids>,
    stop: CancellationToken,
    watchers: TaskTracker,
}

impl Servers {
    /// Starts both and waits until they answer and the roles exist. What an earlier run of the same directory had to
    /// leave behind is stopped first. Once `cancel` is cancelled it stops what it has begun and gives up.
    ///
    /// # Errors
    /// What went wrong, with the last lines that the server wrote.
    pub async fn start(config: &ServersConfig, cancel: &CancellationToken) -> Result<Self, StartError> {
        let postgres = Postgres::prepare(config, cancel).await?;
        let nats = Nats::prepare(config).await?;
        let (postgres, nats) = tokio::join!(start(postgres, cancel), start(nats, cancel));
        let (postgres, nats) = match (postgres, nats) {
            (Ok(postgres), Ok(nats)) => (postgres, nats),
            (Err(error), other) => return Err(given_up(error, other.ok()).await),
            (other, Err(error)) => return Err(given_up(error, other.ok()).await),
        };
        if let Err(error) = postgres.server.bootstrap().await {
            tokio::join!(postgres.stop(), nats.stop());
            return Err(error);
        }
        Ok(Self::watch(postgres, nats))
    }

    fn watch(postgres: Started<Postgres>, nats: Started<Nats>) -> Self {
        let (told, pids) = watch::channel(Pids { postgres: postgres.pid(), nats: nats.pid() });
        let told = Arc::new(told);
        let (stop, watchers) = (CancellationToken::new(), TaskTracker::new());
        let servers = Self {
            postgres: Arc::clone(&postgres.server),
            nats: Arc::clone(&nats.server),
            pids,
            stop: stop.clone(),
            watchers,
        };
        let tell = Arc::clone(&told);
        servers.watchers.spawn(supervise(postgres, stop.clone(), move |pid| {
            tell.send_modify(|pids| pids.postgres = pid);
        }));
        servers.watchers.spawn(supervise(nats, stop, move |pid| told.send_modify(|pids| pids.nats = pid)));
        servers.watchers.close();
        servers
    }

    /// Stops both, and waits until they have ended.
    pub async fn stop(self) {
        self.stop.cancel();
        self.watchers.wait().await;
    }

    /// The processes, kept up to date.
    pub fn pids(&self) -> watch::Receiver<Pids> {
        self.pids.clone()
    }

    /// The address of a database, as one of the roles.
    pub fn database_url(&self, role: Role, database: &str) -> String {
        self.postgres.url(role, database)
    }

    /// The address of the broker, as one of its users.
    pub fn nats_url(&self, user: NatsUser) -> String {
        self.nats.url(user)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Stops what a killed run of this directory may have left behind. The caller holds the lock.
///
/// # Errors
/// When it cannot be stopped.
pub async fn clear_orphans(data: &DataDir) -> std::io::Result<()> {
    postgres::clear_orphan(data).await?;
    nats::clear_orphan(data).await
}

/// Stops the server that did start, since the other did not.
async fn given_up<S: server::Server>(error: StartError, other: Option<Started<S>>) -> StartError {
    if let Some(other) = other {
        other.stop().await;
    }
    error
}
