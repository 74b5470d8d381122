//! The account that runs Postgres. Postgres refuses to run as root, so root needs another account.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tokio::process::Command;

/// The account of a server's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The account of this process.
    Own,
    /// Another user inside a user namespace, root outside. Files stay owned by root, so this also works below a closed home
    /// directory.
    Namespace {
        /// The user id inside the namespace.
        uid: u32,
        /// The group id inside the namespace.
        gid: u32,
    },
    /// Another user.
    Other {
        /// The user id.
        uid: u32,
        /// The group id.
        gid: u32,
    },
}

impl Account {
    /// Selects an account that can use the directory, which may not exist yet, and run the program.
    pub(crate) async fn choose(directory: &Path, program: &Path) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        if let Some(owner) = existing_owner(directory) {
            return Ok(owner);
        }
        let (uid, gid) = unprivileged_user()?;
        let namespace = Self::Namespace { uid, gid };
        let parent = directory.parent().unwrap_or(directory);
        Ok(if namespace.can_write(parent).await && namespace.can_run(program).await {
            namespace
        } else {
            Self::Other { uid, gid }
        })
    }

    /// A command that runs the program under this account.
    pub(crate) fn command(self, program: &Path) -> Command {
        match self {
            Self::Own => Command::new(program),
            Self::Namespace { uid, gid } => {
                let mut command = Command::new("unshare");
                command.arg("--user").arg(format!("--map-user={uid}")).arg(format!("--map-group={gid}"));
                command.arg("--").arg(program);
                command
            }
            Self::Other { uid, gid } => {
                let mut command = Command::new(program);
                // The other user may have no access to the current directory.
                command.uid(uid).gid(gid).current_dir("/");
                command
            }
        }
    }

    /// Returns whether this account can run the program.
    pub(crate) async fn can_run(self, program: &Path) -> bool {
        let mut command = self.command(program);
        command.arg("--version");
        succeeds(command).await
    }

    async fn can_write(self, directory: &Path) -> bool {
        let mut command = self.command(Path::new("test"));
        command.arg("-w").arg(directory);
        succeeds(command).await
    }

    /// Makes another user the owner of a file or directory.
    pub(crate) fn take_ownership(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Other { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
            Self::Own | Self::Namespace { .. } => Ok(()),
        }
    }
}

/// The owner of a directory from an earlier run, unless it is root.
fn existing_owner(directory: &Path) -> Option<Account> {
    let metadata = directory.metadata().ok().filter(|metadata| metadata.uid() != 0)?;
    Some(Account::Other { uid: metadata.uid(), gid: metadata.gid() })
}

/// The ids of `postgres`, else of `nobody`. The user must be in `/etc/passwd` because `initdb` resolves its name.
fn unprivileged_user() -> io::Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let ids = |wanted: &str| {
        let mut fields =
            users.lines().find(|line| line.split(':').next() == Some(wanted))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).ok_or_else(|| {
        io::Error::other("Postgres cannot run as root, and /etc/passwd has no user postgres or nobody")
    })
}

async fn succeeds(mut command: Command) -> bool {
    command.output().await.is_ok_and(|output| output.status.success())
}
