//! Postgres with a standby, separate from the server of the test run. Commits wait for the standby, so that its promotion loses none of
//! them.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::Signal;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use testkit::{TestDatabase, wait_until};
use tokio::task::spawn_blocking;
use url::Url;

use crate::{Process, descendants, free_address, kill, output_of, required_variable};

const ROLES: &str = include_str!("../../deploy/postgres/roles.sql");
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
/// Number of data directories.
static CREATED: AtomicU32 = AtomicU32::new(0);

/// A server. It stops with the test.
pub struct PostgresServer {
    /// The URL of the superuser.
    pub url: Url,
    data: PathBuf,
    /// `None` for the server of the test run, which another process stops.
    process: Option<Process>,
}

/// A primary and its standby.
pub struct ReplicatedPostgres {
    /// The primary.
    pub primary: PostgresServer,
    /// The standby, if the primary has one.
    pub standby: Option<PostgresServer>,
}

impl ReplicatedPostgres {
    /// Starts a primary with the roles of the services, which need no password, and its standby.
    pub async fn start() -> Self {
        let primary = PostgresServer::create().await;
        let standby = primary.start_standby(free_address().port()).await;
        Self { primary, standby: Some(standby) }
    }

    /// Creates a database of which commits are durable and wait for the standby, unlike those of the test run.
    pub async fn create_database(&self) -> TestDatabase {
        let database = TestDatabase::create_on(&self.primary.url).await.unwrap();
        let keep = "do $$ begin execute format('alter database %I set synchronous_commit = on', current_database()); end $$";
        sqlx::raw_sql(keep).execute(&mut database.superuser().await.unwrap()).await.unwrap();
        database
    }

    /// Promotes the standby. Returns the former primary, which still runs. The new primary has no standby.
    pub async fn promote(&mut self) -> PostgresServer {
        let standby = self.standby.take().unwrap();
        let promoted = sqlx::query_scalar("select pg_promote()");
        let promoted: bool = promoted.fetch_one(&mut standby.connect().await).await.unwrap();
        assert!(promoted, "failed to promote the standby within a minute");
        std::mem::replace(&mut self.primary, standby)
    }

    /// Stops the primary at once and promotes the standby. Returns the port of the former primary.
    pub async fn fail_over(&mut self) -> u16 {
        self.primary.kill();
        self.promote().await.port()
    }

    /// Starts a standby at this port.
    pub async fn start_standby(&mut self, port: u16) {
        self.standby = Some(self.primary.start_standby(port).await);
    }
}

impl PostgresServer {
    /// A server with the roles of the services, which need no password, and with the WAL that a standby needs.
    async fn create() -> Self {
        let server = Self::create_with(&["--auth=trust"]).await;
        sqlx::raw_sql(ROLES).execute(&mut server.connect().await).await.unwrap();
        // Keeps the WAL that a standby needs after the copy.
        server.set("wal_keep_size", "1GB").await;
        server
    }

    /// An empty server: it has neither roles nor databases of the services, and every role needs a password.
    pub async fn create_empty() -> Self {
        let password = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(password.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let url = Url::parse(required_variable("SVC_TEST_DATABASE_URL").to_str().unwrap()).unwrap();
        fs::write(password.path(), url.password().unwrap()).unwrap();
        let file = format!("--pwfile={}", password.path().display());
        Self::create_with(&["--auth=scram-sha-256", &file]).await
    }

    /// A new server with the settings of the server of the test run, and under the same user.
    async fn create_with(options: &[&str]) -> Self {
        let url = Url::parse(required_variable("SVC_TEST_DATABASE_URL").to_str().unwrap()).unwrap();
        let data = sqlx::query_scalar::<_, String>("show data_directory");
        let data = data.fetch_one(&mut PgConnection::connect(url.as_str()).await.unwrap()).await.unwrap();
        let template = Self { url, data: data.into(), process: None };
        let data = template.new_data();
        fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
        template.take_ownership(&data);
        let mut initdb = template.command("initdb", &data);
        initdb.arg("-D").arg(&data).args([
            "--username=postgres",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]);
        initdb.args(options);
        let output = output_of(initdb).await;
        assert!(output.status.success(), "{output:?}");
        let server = template.start_with(data, free_address().port());
        wait_until("Postgres listens", async || PgConnection::connect(server.url.as_str()).await.ok()).await;
        server
    }

    /// A connection of the superuser.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(self.url.as_str()).await.unwrap()
    }

    /// The port on loopback.
    pub fn port(&self) -> u16 {
        self.url.port().unwrap()
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The process that starts all others.
    pub fn pid(&self) -> i32 {
        if let Some(process) = &self.process {
            return process.pid();
        }
        let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap();
        file.lines().next().unwrap().parse().unwrap()
    }

    /// Changes a setting.
    pub async fn set(&self, name: &str, value: &str) {
        let mut connection = self.connect().await;
        // Each statement alone: `alter system` cannot run in a transaction.
        for statement in
            [format!("alter system set {name} = '{value}'"), "select pg_reload_conf()".to_owned()]
        {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
    }

    /// The number of connections of the services.
    pub async fn connections_of_services(&self) -> i64 {
        let count = "select count(*) from pg_stat_activity where application_name like 'svc-%'";
        sqlx::query_scalar(count).fetch_one(&mut self.connect().await).await.unwrap()
    }

    /// Stops all its processes at once.
    pub fn kill(&self) {
        for pid in descendants(self.pid()) {
            kill(pid, Signal::KILL);
        }
    }

    /// Copies the data to a new server, which follows this one. From then on, commits wait for it.
    async fn start_standby(&self, port: u16) -> Self {
        self.set("synchronous_standby_names", "").await;
        let data = self.new_data();
        let mut backup = self.connect().await;
        sqlx::query("select pg_backup_start('standby', true)").execute(&mut backup).await.unwrap();
        let (from, to) = (self.data.clone(), data.clone());
        spawn_blocking(move || copy(&from, &to)).await.unwrap().unwrap();
        let label = sqlx::query_scalar::<_, String>("select labelfile from pg_backup_stop(false)");
        fs::write(data.join("backup_label"), label.fetch_one(&mut backup).await.unwrap()).unwrap();
        backup.close().await.unwrap();
        fs::write(data.join("standby.signal"), "").unwrap();
        // The last value of a setting applies.
        let mut settings =
            fs::OpenOptions::new().append(true).open(data.join("postgresql.auto.conf")).unwrap();
        writeln!(settings, "primary_conninfo = '{}'", self.url).unwrap();
        self.take_ownership(&data);
        let mut standby = self.start_with(data, port);
        // It can follow the primary before it accepts connections.
        wait_until("the standby accepts connections and follows the primary", async || {
            standby.process.as_mut().unwrap().expect_running();
            PgConnection::connect(standby.url.as_str()).await.ok()?;
            let following = "select count(*) from pg_stat_replication where state = 'streaming'";
            let following: i64 =
                sqlx::query_scalar(following).fetch_one(&mut self.connect().await).await.unwrap();
            (following > 0).then_some(())
        })
        .await;
        self.set("synchronous_standby_names", "*").await;
        standby
    }

    /// The path of a data directory that does not exist yet.
    fn new_data(&self) -> PathBuf {
        let number = CREATED.fetch_add(1, Relaxed);
        self.data.with_file_name(format!("replica-{}-{number}", std::process::id()))
    }

    /// Makes the user of this server the owner.
    fn take_ownership(&self, path: &Path) {
        let owner = fs::metadata(&self.data).unwrap();
        change_owner(path, owner.uid(), owner.gid()).unwrap();
    }

    /// A program of Postgres under the user of this server.
    fn command(&self, program: &str, directory: &Path) -> Command {
        let process = PathBuf::from(format!("/proc/{}", self.pid()));
        let program = fs::read_link(process.join("exe")).unwrap().with_file_name(program);
        let ids = [process.join("uid_map"), process.join("gid_map")].map(|map| mapped_id(&map));
        let mut command = if let [Some(uid), Some(gid)] = ids {
            let mut command = Command::new("unshare");
            command.arg("--user").arg(format!("--map-user={uid}")).arg(format!("--map-group={gid}"));
            command.arg("--").arg(program);
            command
        } else {
            let (mut command, owner) = (Command::new(program), fs::metadata(&self.data).unwrap());
            if owner.uid() != rustix::process::getuid().as_raw() {
                command.uid(owner.uid()).gid(owner.gid());
            }
            command
        };
        command.env("LC_ALL", "C").current_dir(directory);
        command
    }

    /// Starts a server with the settings of this one for other data and another port.
    fn start_with(&self, data: PathBuf, port: u16) -> Self {
        let mut command = self.command("postgres", &data);
        let arguments = fs::read_to_string(format!("/proc/{}/cmdline", self.pid())).unwrap();
        let mut previous = "";
        for argument in arguments.split_terminator('\0').skip(1) {
            match previous {
                "-D" => command.arg(&data),
                _ if argument.starts_with("port=") => command.arg(format!("port={port}")),
                _ => command.arg(argument),
            };
            previous = argument;
        }
        let mut url = self.url.clone();
        url.set_port(Some(port)).unwrap();
        let process = Process::start(&mut command, &data.with_extension("log"));
        Self { url, data, process: Some(process) }
    }
}

/// Returns the id in the user namespace of a process that has a single id; `None` outside such a namespace.
fn mapped_id(map: &Path) -> Option<u32> {
    let text = fs::read_to_string(map).unwrap();
    let fields: Vec<u32> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [inside, _, 1] => Some(inside),
        _ => None,
    }
}

impl Drop for PostgresServer {
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
