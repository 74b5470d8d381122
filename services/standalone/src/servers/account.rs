//! Who Postgres runs as. It refuses to be root, so when root starts it, it gets another identity.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tokio::process::Command;

/// The identity of a server's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// Whoever runs this process.
    Own,
    /// Root outside, somebody else inside a user namespace. Needs no file to be owned by or readable for anybody else,
    /// so it also works below a closed home directory.
    Namespace {
        /// The user id inside.
        uid: u32,
        /// The group id inside.
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
    /// The fitting account for a directory that is there already, or is to be made, and a program to be run.
    pub(super) async fn choose(home: &Path, program: &Path) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        if let Some(owner) = stranger_owning(home) {
            return Ok(owner);
        }
        let (uid, gid) = unprivileged_user()?;
        let namespace = Self::Namespace { uid, gid };
        let parent = home.parent().unwrap_or(home);
        Ok(if namespace.can_write(parent).await && namespace.can_run(program).await {
            namespace
        } else {
            Self::Other { uid, gid }
        })
    }

    /// A command for the program under this account.
    pub(super) fn command(self, program: &Path) -> Command {
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
                // The current directory may be closed to the other user.
                command.uid(uid).gid(gid).current_dir("/");
                command
            }
        }
    }

    /// Whether the program runs at all under this account.
    pub(super) async fn can_run(self, program: &Path) -> bool {
        let mut command = self.command(program);
        command.arg("--version");
        succeeds(command).await
    }

    async fn can_write(self, directory: &Path) -> bool {
        let mut command = self.command(Path::new("test"));
        command.arg("-w").arg(directory);
        succeeds(command).await
    }

    /// Hands a file or directory over to the account, where that needs doing.
    pub(super) fn give(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Other { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
            Self::Own | Self::Namespace { .. } => Ok(()),
        }
    }
}

/// The owner of a directory that an earlier run made, if that is not root.
fn stranger_owning(home: &Path) -> Option<Account> {
    let metadata = home.metadata().ok().filter(|metadata| metadata.uid() != 0)?;
    Some(Account::Other { uid: metadata.uid(), gid: metadata.gid() })
}

/// `postgres` where there is one, else `nobody`. It must stand in the list of users: `initdb` looks its name up.
fn unprivileged_user() -> io::Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let ids = |wanted: &str| {
        let mut fields =
            users.lines().find(|line| line.split(':').next() == Some(wanted))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).ok_or_else(|| {
        io::Error::other("Postgres refuses to be root, and there is no user postgres or nobody")
    })
}

async fn succeeds(mut command: Command) -> bool {
    command.output().await.is_ok_and(|output| output.status.success())
}
