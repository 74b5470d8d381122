//! The database cluster: its directory, its owner and its creation.
//!
//! The cluster is in `postgres` below the data directory. If Postgres runs as another user, who has no access to the data
//! directory, `postgres` is a symbolic link to a directory of that user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use service::files;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::Durability;
use crate::account::Account;
use crate::process::{find_version, major};
use crate::server::StartError;
use crate::{Tools, print_progress, secret};

/// The directory of a cluster, and the programs for it.
pub(super) struct Cluster {
    directory: PathBuf,
    account: Account,
    programs: PathBuf,
}

impl Cluster {
    /// Finds or creates the directory, and makes sure that its owner can run the programs.
    pub(super) async fn open(link: &Path, tools: &Tools, account: Option<Account>) -> anyhow::Result<Self> {
        let failed = || format!("failed to prepare the directory {}", link.display());
        let programs = fs::canonicalize(&tools.postgres_bin_dir);
        let programs = programs.context("failed to find the programs of Postgres")?;
        let account = match account {
            Some(account) => account,
            None => Account::choose(link, &programs.join("postgres")).await.with_context(failed)?,
        };
        let directory = create_directory(link, account).with_context(failed)?;
        let mut cluster = Self { directory, account, programs };
        if !account.can_run(&cluster.programs.join("initdb")).await {
            cluster.programs = cluster.copy_programs(tools).with_context(failed)?;
        }
        Ok(cluster)
    }

    /// The data directory of Postgres (`PGDATA`).
    pub(super) fn data_dir(&self) -> PathBuf {
        self.directory.join("cluster")
    }

    /// A command that runs a Postgres program under the account of the cluster.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(&self.programs.join(program));
        // The machine may not have the locale of the environment.
        command.env("LC_ALL", "C").env_remove("PGDATA");
        command
    }

    /// Creates the cluster atomically, or checks the version of the existing one.
    pub(super) async fn ensure(
        &self,
        password: &str,
        durability: Durability,
        cancel: &CancellationToken,
    ) -> Result<(), StartError> {
        if self.data_dir().exists() {
            return Ok(self.check_version().await?);
        }
        print_progress("Creating the database cluster …");
        let failed = "failed to create the database cluster";
        let part = self.directory.join("cluster.part");
        let password_file = self.directory.join("password.part");
        let prepare = || {
            remove_if_exists(&part)?;
            files::replace(&password_file, password.as_bytes(), 0o600)?;
            self.account.take_ownership(&password_file)
        };
        prepare().context(failed)?;
        let created = self.initdb(&part, &password_file, durability);
        let created = cancel.run_until_cancelled(created).await;
        fs::remove_file(&password_file).context(failed)?;
        created.ok_or(StartError::Cancelled)??;
        Ok(fs::rename(&part, self.data_dir()).context(failed)?)
    }

    async fn initdb(&self, target: &Path, password: &Path, durability: Durability) -> anyhow::Result<()> {
        let mut command = self.command("initdb");
        command.arg("-D").arg(target).arg("--pwfile").arg(password);
        command.args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]);
        if durability == Durability::Temporary {
            command.arg("--no-sync");
        }
        command.process_group(0).kill_on_drop(true);
        let output = command.output().await.context("failed to run initdb")?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("initdb failed ({}):\n{}", output.status, stderr.trim_end())
    }

    /// Checks that the major version of Postgres is the one that created the cluster.
    async fn check_version(&self) -> anyhow::Result<()> {
        let created_by = fs::read_to_string(self.data_dir().join("PG_VERSION"));
        let created_by = created_by.context("failed to read the version of the database cluster")?;
        let output = self.command("postgres").arg("--version").output().await;
        let output = output.context("failed to run postgres --version")?;
        let version = String::from_utf8_lossy(&output.stdout);
        if find_version(&version).and_then(major) == Some(created_by.trim()) {
            return Ok(());
        }
        bail!(
            "the data in {} were created by Postgres {}, but {} is {}. Install that version, or start with an empty data \
             directory (make clean removes the default one)",
            self.data_dir().display(),
            created_by.trim(),
            self.programs.display(),
            version.trim(),
        )
    }

    /// Copies a fetched installation to a directory that the owner can read.
    fn copy_programs(&self, tools: &Tools) -> io::Result<PathBuf> {
        let not_executable =
            || io::Error::other(format!("the user of Postgres cannot run {}", self.programs.display()));
        let package = fs::canonicalize(tools.postgres_package.as_ref().ok_or_else(not_executable)?)?;
        let relative = self.programs.strip_prefix(&package).map_err(|_| not_executable())?;
        let copy = self.directory.join("programs");
        remove_if_exists(&copy)?;
        copy_tree(&package, &copy)?;
        Ok(copy.join(relative))
    }
}

/// Creates the directory where the account has access to it. Returns its canonical path.
fn create_directory(link: &Path, account: Account) -> io::Result<PathBuf> {
    if !link.exists() {
        // A symbolic link without its target.
        remove_if_exists(link)?;
        match account {
            Account::Own | Account::Namespace { .. } => create_private(link)?,
            Account::Other { .. } => {
                let target = external_directory();
                create_private(&target)?;
                account.take_ownership(&target)?;
                symlink(&target, link)?;
            }
        }
    }
    fs::canonicalize(link)
}

fn external_directory() -> PathBuf {
    let preferred = Path::new("/var/lib");
    let parent = if preferred.is_dir() { preferred.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("svc-standalone-{}", &secret::generate()[..16]))
}

fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
