//! What a script needs to know about a run. The file is there exactly while the run can be used: it is written when
//! everything answers, kept up to date, and removed at the end; what a killed run left is removed by the next.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::secret::write_private;
use crate::servers::Pids;

/// The run_file, as they stand in `.dev/standalone.json`. They hold credentials: the file is its owner's alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The origin of the public API, without `/api/v1`.
    pub base_url: String,
    /// The broker, as its administrator.
    pub nats_url: String,
    /// The database, as the superuser.
    pub database_url: String,
    /// The file that holds the operator's token.
    pub platform_token_file: PathBuf,
    /// The first tenant.
    pub tenant: String,
    /// The first tenant's administrator.
    pub admin_email: String,
    /// The token of the administrator's invite, while it is unused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_invite_token: Option<String>,
    /// Where mails are written.
    pub mail_dir: PathBuf,
    /// The client.
    pub svc: PathBuf,
    /// This process.
    pub pid: u32,
    /// The servers, as they run now.
    pub children: Pids,
}

impl RunFile {
    /// Reads a run_file file.
    ///
    /// # Errors
    /// When it is missing or is none.
    pub fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// The files that show a run's run_file. Dropping it removes them.
#[derive(Debug)]
pub struct RunFiles {
    paths: Vec<PathBuf>,
}

impl RunFiles {
    /// Takes over these paths, and removes what an earlier run may have left there.
    pub fn own(paths: Vec<PathBuf>) -> Self {
        let files = Self { paths };
        files.remove();
        files
    }

    /// The file to tell people about.
    pub fn first(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Shows these run_file from now on.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn show(&self, run_file: &RunFile) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(run_file)?;
        text.push(b'\n');
        self.paths.iter().try_for_each(|path| write_private(path, &text))
    }

    fn remove(&self) {
        for path in &self.paths {
            // One that is not there is as good as removed; nothing more can be done about any other fault.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn run_file() -> RunFile {
        RunFile {
            base_url: "http://127.0.0.1:8080".into(),
            nats_url: "nats://a:b@127.0.0.1:1".into(),
            database_url: "postgres://a:b@127.0.0.1:2/svc".into(),
            platform_token_file: "/d/secrets/platform-token".into(),
            tenant: "demo".into(),
            admin_email: "admin@demo.example".into(),
            admin_invite_token: Some("t".into()),
            mail_dir: "/d/mails".into(),
            svc: "/b/svc".into(),
            pid: 7,
            children: Pids { postgres: 8, nats: 9 },
        }
    }

    #[test]
    fn the_file_has_the_promised_names_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("standalone.json");
        std::fs::write(&path, "stale").unwrap();
        let files = RunFiles::own(vec![path.clone()]);
        assert!(!path.exists(), "stale run_file are gone before anything starts");

        files.show(&run_file()).unwrap();
        assert_eq!(RunFile::load(&path).unwrap(), run_file());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["children"], serde_json::json!({"postgres": 8, "nats": 9}));
        assert_eq!(json["admin_invite_token"], "t");

        files.show(&RunFile { admin_invite_token: None, ..run_file() }).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(json.get("admin_invite_token").is_none());

        drop(files);
        assert!(!path.exists());
    }
}
