//! Postgres with a standby. Commits wait for the standby, so that its promotion loses none of them.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use e2e::{Process, StoppedProcesses, descendants, free_address, kill};
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use testkit::wait_until;
use tokio::task::spawn_blocking;
use url::Url;

/// Files of a data directory that belong to its server, and directories that are copied without their content.
const NOT_COPIED: [&str; 2] = ["postmaster.pid", "postmaster.opts"];
const COPIED_EMPTY: [&str; 8] = [
    "pg_dynshmem",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_wal",
];

/// A server.
struct Server {
    /// For the superuser.
    url: Url,
    data: PathBuf,
    /// The process that starts all others.
    pid: i32,
    /// `None` for the server of the test run, which another process stops.
    process: Option<Process>,
}

/// The primary and its standby.
pub(crate) struct Database {
    primary: Server,
    standby: Server,
    /// The server of the test run, after its standby was promoted. It continues at the end.
    fenced: Option<StoppedProcesses>,
    started: u32,
}

impl Database {
    /// Starts a standby of the server at this URL of the superuser.
    pub(crate) async fn start(url: &str) -> anyhow::Result<Self> {
        let primary = Server::running(Url::parse(url)?).await?;
        let standby = primary.start_standby(1).await?;
        Ok(Self { primary, standby, fenced: None, started: 1 })
    }

    /// The process id of the primary.
    pub(crate) fn pid(&self) -> i32 {
        self.primary.pid
    }

    /// The data directory of the primary.
    pub(crate) fn data(&self) -> &Path {
        &self.primary.data
    }

    /// Stops the primary and promotes the standby. Returns its port. The new primary has no standby yet.
    pub(crate) async fn promote(&mut self) -> anyhow::Result<u16> {
        if self.primary.process.is_some() {
            for pid in descendants(self.primary.pid) {
                kill(pid, Signal::KILL);
            }
        } else {
            self.fenced = Some(StoppedProcesses::stop_tree(self.primary.pid));
        }
        let promoted: bool = sqlx::query_scalar("select pg_promote()")
            .fetch_one(&mut connect(&self.standby.url).await?)
            .await?;
        ensure!(promoted, "failed to promote the standby within a minute");
        self.standby.url.port().context("an address without a port")
    }

    /// Starts a standby of the promoted server.
    pub(crate) async fn replace_standby(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        let next = self.standby.start_standby(self.started).await?;
        self.primary = std::mem::replace(&mut self.standby, next);
        Ok(())
    }
}

impl Server {
    /// The server that runs at this URL.
    async fn running(url: Url) -> anyhow::Result<Self> {
        let data: String =
            sqlx::query_scalar("show data_directory").fetch_one(&mut connect(&url).await?).await?;
        let data = PathBuf::from(data);
        // The process id is in the first line.
        let file = fs::read_to_string(data.join("postmaster.pid"))?;
        let pid = file.lines().next().unwrap_or_default().parse()?;
        let server = Self { url, data, pid, process: None };
        // Keeps the WAL that a standby needs after the copy.
        server.execute(&["alter system set wal_keep_size = '1GB'", "select pg_reload_conf()"]).await?;
        Ok(server)
    }

    /// Executes each statement alone: `alter system` cannot run in a transaction.
    async fn execute(&self, statements: &[&'static str]) -> anyhow::Result<()> {
        let mut connection = connect(&self.url).await?;
        for statement in statements {
            sqlx::raw_sql(*statement).execute(&mut connection).await.context(*statement)?;
        }
        Ok(connection.close().await?)
    }

    /// Copies the data to a new server, which follows this one. From then on, commits wait for it.
    async fn start_standby(&self, number: u32) -> anyhow::Result<Self> {
        self.execute(&["alter system set synchronous_standby_names = ''", "select pg_reload_conf()"]).await?;
        let data = self.data.with_file_name(format!("standby-{}-{number}", std::process::id()));
        let mut backup = connect(&self.url).await?;
        sqlx::query("select pg_backup_start('campaign', true)").execute(&mut backup).await?;
        let (from, to) = (self.data.clone(), data.clone());
        spawn_blocking(move || copy(&from, &to)).await??;
        let label: String =
            sqlx::query_scalar("select labelfile from pg_backup_stop(false)").fetch_one(&mut backup).await?;
        backup.close().await?;
        fs::write(data.join("backup_label"), label)?;
        fs::write(data.join("standby.signal"), "")?;
        // The last value of a setting applies.
        let mut settings = fs::OpenOptions::new().append(true).open(data.join("postgresql.auto.conf"))?;
        writeln!(settings, "primary_conninfo = '{}'", self.url)?;
        let owner = fs::metadata(&self.data)?;
        change_owner(&data, owner.uid(), owner.gid())?;

        let (mut url, port) = (self.url.clone(), free_address().port());
        let _ = url.set_port(Some(port));
        let output = data.with_extension("log");
        let mut process = Process::start(&mut self.command_with(&data, port)?, &output);
        wait_until("the standby follows the primary", async || {
            process.expect_running();
            let mut connection = connect(&self.url).await.ok()?;
            let following = "select count(*) from pg_stat_replication where state = 'streaming'";
            let following: i64 = sqlx::query_scalar(following).fetch_one(&mut connection).await.ok()?;
            (following > 0).then_some(())
        })
        .await;
        let standby = Self { url, data, pid: process.pid(), process: Some(process) };
        self.execute(&["alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"])
            .await?;
        Ok(standby)
    }

    /// The command of this server for other data and another port, under the same user.
    fn command_with(&self, data: &Path, port: u16) -> anyhow::Result<Command> {
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let program = fs::read_link(process.join("exe"))?;
        let namespace = mapped_id(&process.join("uid_map"))?.zip(mapped_id(&process.join("gid_map"))?);
        let mut command = if let Some((uid, gid)) = namespace {
            let mut command = Command::new("unshare");
            command.arg("--user").arg(format!("--map-user={uid}")).arg(format!("--map-group={gid}"));
            command.arg("--").arg(program);
            command
        } else {
            let (mut command, owner) = (Command::new(program), fs::metadata(&self.data)?);
            if owner.uid() != rustix::process::getuid().as_raw() {
                command.uid(owner.uid()).gid(owner.gid());
            }
            command
        };
        let arguments = fs::read_to_string(process.join("cmdline"))?;
        let mut previous = "";
        for argument in arguments.split_terminator('\0').skip(1) {
            match previous {
                "-D" => command.arg(data),
                _ if argument.starts_with("port=") => command.arg(format!("port={port}")),
                _ => command.arg(argument),
            };
            previous = argument;
        }
        command.env("LC_ALL", "C").current_dir(data);
        Ok(command)
    }
}

/// Returns the id in the user namespace of a process that has a single id; `None` outside such a namespace.
fn mapped_id(map: &Path) -> anyhow::Result<Option<u32>> {
    let text = fs::read_to_string(map)?;
    let fields: Vec<u32> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Ok(match fields[..] {
        [inside, _, 1] => Some(inside),
        _ => None,
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // Immediate shutdown: it does not wait for clients.
            process.signal(Signal::QUIT);
            drop(process);
            let _ = fs::remove_dir_all(&self.data);
            let _ = fs::remove_file(self.data.with_extension("log"));
        }
    }
}

async fn connect(url: &Url) -> Result<PgConnection, sqlx::Error> {
    PgConnection::connect(url.as_str()).await
}

/// Copies the data directory of a running server: files can disappear.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, name) = (entry.path(), entry.file_name());
        let (target, name) = (to.join(&name), name.to_string_lossy().into_owned());
        if source.is_dir() {
            if COPIED_EMPTY.contains(&&*name) {
                fs::DirBuilder::new().mode(0o700).create(target)?;
            } else {
                copy(&source, &target)?;
            }
        } else if !NOT_COPIED.contains(&&*name) {
            match fs::copy(&source, &target) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn change_owner(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    chown(path, Some(uid), Some(gid))?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            change_owner(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}
