//! Where a cluster lies, who it belongs to, and how it comes into being.
//!
//! Usually it lies in `postgres` below the data directory. When Postgres has to be another user, whom the data directory
//! is closed to, `postgres` is a link to a directory of that user's, elsewhere.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::Durability;
use crate::Tools;
use crate::say::note;
use crate::secret;
use crate::servers::account::Account;
use crate::servers::server::StartError;

/// The directory of a cluster and the programs that work on it.
pub(super) struct Home {
    path: PathBuf,
    account: Account,
    programs: PathBuf,
}

impl Home {
    /// Finds or makes the directory, and sees to it that the programs can be run by its owner.
    pub(super) async fn open(
        link: &Path,
        tools: &Tools,
        account: Option<Account>,
    ) -> Result<Self, StartError> {
        let failed = || StartError::io(format!("preparing the directory {}", link.display()));
        let programs =
            fs::canonicalize(&tools.postgres_bin_dir).map_err(StartError::io("finding Postgres"))?;
        let account = match account {
            Some(account) => account,
            None => Account::choose(link, &programs.join("postgres")).await.map_err(failed())?,
        };
        let path = place(link, account).map_err(failed())?;
        let mut home = Self { path, account, programs };
        if !account.can_run(&home.programs.join("initdb")).await {
            home.programs = home.copy_programs(tools).map_err(failed())?;
        }
        Ok(home)
    }

    /// The data directory of Postgres.
    pub(super) fn cluster(&self) -> PathBuf {
        self.path.join("cluster")
    }

    /// Where Postgres keeps its process id.
    pub(super) fn pid_file(&self) -> PathBuf {
        self.cluster().join("postmaster.pid")
    }

    /// A command for one of Postgres' programs, under the right account.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(&self.programs.join(program));
        // The machine's own language settings may name locales that it does not have.
        command.env("LC_ALL", "C").env_remove("PGDATA");
        command
    }

    /// Makes the cluster, all or nothing, unless there is one that this Postgres can use.
    pub(super) async fn ensure_cluster(
        &self,
        password: &str,
        durability: Durability,
        cancel: &CancellationToken,
    ) -> Result<(), StartError> {
        if self.cluster().exists() {
            return self.check_version().await;
        }
        note("creating the database cluster …");
        let doing = || StartError::io("creating the database cluster");
        let (part, password_file) = (self.path.join("cluster.part"), self.path.join("password.part"));
        let begin = || {
            remove_if_there(&part)?;
            secret::write_private(&password_file, password.as_bytes())?;
            self.account.give(&password_file)
        };
        begin().map_err(doing())?;
        let made = self.initdb(&part, &password_file, durability);
        let made = cancel.run_until_cancelled(made).await;
        fs::remove_file(&password_file).map_err(doing())?;
        made.ok_or(StartError::Cancelled)??;
        fs::rename(&part, self.cluster()).map_err(doing())
    }

    async fn initdb(&self, target: &Path, password: &Path, durability: Durability) -> Result<(), StartError> {
        let mut command = self.command("initdb");
        command.arg("-D").arg(target).arg("--pwfile").arg(password);
        command.args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]);
        if durability == Durability::Throwaway {
            command.arg("--no-sync");
        }
        command.process_group(0).kill_on_drop(true);
        let output = command.output().await.map_err(StartError::io("running initdb"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(StartError::Unusable(format!("initdb failed, {}:\n{}", output.status, said.trim_end())))
    }

    /// A cluster can only be used by the major version that made it.
    async fn check_version(&self) -> Result<(), StartError> {
        let made_by = fs::read_to_string(self.cluster().join("PG_VERSION"));
        let made_by = made_by.map_err(StartError::io("reading the version of the database cluster"))?;
        let output = self.command("postgres").arg("--version").output().await;
        let output = output.map_err(StartError::io("asking Postgres for its version"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if major_version(&said) == Some(made_by.trim()) {
            return Ok(());
        }
        Err(StartError::Unusable(format!(
            "the data in {} were made by Postgres {}, but {} is {}. Make that version available again, or start afresh \
             with another data directory (make clean removes the usual one)",
            self.cluster().display(),
            made_by.trim(),
            self.programs.display(),
            said.trim(),
        )))
    }

    /// Copies a fetched installation to where the owner can read it.
    fn copy_programs(&self, tools: &Tools) -> io::Result<PathBuf> {
        let closed =
            || io::Error::other(format!("the user of Postgres cannot run {}", self.programs.display()));
        let package = fs::canonicalize(tools.postgres_package.as_ref().ok_or_else(closed)?)?;
        let below = self.programs.strip_prefix(&package).map_err(|_| closed())?;
        let copy = self.path.join("programs");
        remove_if_there(&copy)?;
        copy_tree(&package, &copy)?;
        Ok(copy.join(below))
    }
}

/// Makes the directory where the account can use it, and returns its true path.
fn place(link: &Path, account: Account) -> io::Result<PathBuf> {
    if !link.exists() {
        // A link whose target somebody has removed.
        remove_if_there(link)?;
        match account {
            Account::Own | Account::Namespace { .. } => private_directory(link)?,
            Account::Other { .. } => {
                let target = elsewhere();
                private_directory(&target)?;
                account.give(&target)?;
                symlink(&target, link)?;
            }
        }
    }
    fs::canonicalize(link)
}

fn elsewhere() -> PathBuf {
    let usual = Path::new("/var/lib");
    let parent = if usual.is_dir() { usual.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("svc-standalone-{}", &secret::fresh()[..16]))
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
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

/// The major version in `postgres (PostgreSQL) 15.18 (Debian …)`.
fn major_version(said: &str) -> Option<&str> {
    let digits = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    said.split_whitespace().find(|word| digits(word))?.split(|c: char| !c.is_ascii_digit()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_postgres_says() {
        assert_eq!(major_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some("15"));
        assert_eq!(major_version("postgres (PostgreSQL) 19beta1"), Some("19"));
        assert_eq!(major_version("sh: not found"), None);
    }
}
