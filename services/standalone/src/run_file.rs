//! The run file: addresses, credentials and process ids of a run, for scripts; and the summary of it for people.
//!
//! The file exists only while the system can be used: `up` writes it when everything is ready, updates it, and removes it at
//! shutdown. The next run removes the file of a run that was killed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use devservers::Pids;
use serde::{Deserialize, Serialize};
use service::files;

/// The content of `.dev/standalone.json`. It contains credentials, so only its owner can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The origin of the public API, without `/api/v1`.
    pub base_url: String,
    /// The URL of the broker for the administrator of the streams of events.
    pub nats_url: String,
    /// The URL of the broker for the administrator of the streams of audit events.
    pub audit_nats_url: String,
    /// The URL of the database for the superuser.
    pub database_url: String,
    /// The file that contains the platform token.
    pub platform_token_file: PathBuf,
    /// The first tenant.
    pub tenant: String,
    /// The administrator of the first tenant.
    pub admin_email: String,
    /// The invite token of the administrator, until it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_invite_token: Option<String>,
    /// The directory of outgoing mails.
    pub mail_dir: PathBuf,
    /// The CLI.
    pub svc: PathBuf,
    /// The process of `up`.
    pub pid: u32,
    /// The processes of the servers.
    pub children: Pids,
}

impl RunFile {
    /// Reads a run file.
    ///
    /// # Errors
    /// If the file is missing or invalid.
    pub fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// The path of the lock that protects a run file.
pub(crate) fn lock_path(run_file: &Path) -> PathBuf {
    run_file.with_extension("lock")
}

/// The run files of one run. Dropping it removes them.
#[derive(Debug)]
pub struct RunFiles {
    paths: Vec<PathBuf>,
}

impl RunFiles {
    /// Removes existing files at these paths, which this run uses from now on.
    pub fn claim(paths: Vec<PathBuf>) -> Self {
        let files = Self { paths };
        files.remove();
        files
    }

    /// The path to show to people.
    pub fn primary(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Writes all files.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, run_file: &RunFile) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(run_file)?;
        text.push(b'\n');
        self.paths.iter().try_for_each(|path| files::replace(path, &text, 0o600))
    }

    fn remove(&self) {
        for path in &self.paths {
            // The file may not exist; no other error can be handled.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The text that `up` prints when the system is ready: addresses, directories and the next commands.
pub(crate) struct Summary<'a> {
    pub(crate) run_file: &'a RunFile,
    pub(crate) run_file_path: &'a Path,
    /// The origin of the admin listener.
    pub(crate) admin_url: &'a str,
    /// Whether a mail server sends the mails. If not, they are written to files.
    pub(crate) sends_mails: bool,
    /// The data directory.
    pub(crate) data: &'a Path,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunFile { base_url, nats_url, tenant, admin_email, .. } = self.run_file;
        let broker = nats_url.rsplit('@').next().unwrap_or(nats_url);
        writeln!(f, "\nThe system is ready.\n")?;
        writeln!(f, "  API             {base_url}/api/v1")?;
        writeln!(f, "  API docs        {base_url}/api/v1/docs")?;
        writeln!(f, "  readiness       {}/readyz", self.admin_url)?;
        writeln!(f, "  metrics         {}/metrics", self.admin_url)?;
        writeln!(f, "  NATS            nats://{broker} (for the logins of `svc consumers create`)")?;
        writeln!(f, "  data            {}", self.data.display())?;
        if self.sends_mails {
            writeln!(f, "  mails           sent through SVC_SMTP_URL")?;
        } else {
            writeln!(f, "  mails           {}/*.eml (stored, not sent)", self.run_file.mail_dir.display())?;
        }
        writeln!(f, "  platform token  {}", self.run_file.platform_token_file.display())?;
        writeln!(f, "  run file        {}", self.run_file_path.display())?;
        if let Some(token) = &self.run_file.admin_invite_token {
            writeln!(f, "  invite token    {token}")?;
            writeln!(f, "  invite link     {base_url}/api/v1/pages/accept-invite#token={token}")?;
        }
        writeln!(f, "\nPress Ctrl-C to stop it; the data are kept. To try it, run in another terminal:\n")?;
        let svc = shell_word(&self.run_file.svc.to_string_lossy());
        writeln!(f, "  export SVC_BASE_URL={base_url} SVC_TENANT={tenant}")?;
        if self.run_file.admin_invite_token.is_some() {
            writeln!(
                f,
                "  {svc} users accept-invite   # asks for the invite token above and for a password"
            )?;
        }
        writeln!(f, "\nLog in:\n")?;
        writeln!(f, "  {svc} auth login --email {admin_email} --tenant {tenant}")?;
        writeln!(f, "\nInvite a member, send an event and list the sessions:\n")?;
        writeln!(f, "  {svc} users invite --email member@{tenant}.example --tenant {tenant}")?;
        let event = r#"{"source_id":"demo","metadata":{"event_type":"USER_LOGIN"}}"#;
        writeln!(f, "  echo '{event}' | {svc} events send -f -")?;
        writeln!(f, "  {svc} auth sessions list")?;
        writeln!(f, "\nTo revoke a session, use an id from the list:\n")?;
        writeln!(f, "  {svc} auth sessions revoke '<session-id>'")
    }
}

/// Quotes the text as one word for a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
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
            audit_nats_url: "nats://d:e@127.0.0.1:1".into(),
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
    fn a_run_file_has_the_documented_fields_and_is_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("standalone.json");
        std::fs::write(&path, "stale").unwrap();
        let files = RunFiles::claim(vec![path.clone()]);
        assert!(!path.exists(), "a stale run file is removed before the start");

        files.write(&run_file()).unwrap();
        assert_eq!(RunFile::load(&path).unwrap(), run_file());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["children"], serde_json::json!({"postgres": 8, "nats": 9}));
        assert_eq!(json["admin_invite_token"], "t");

        files.write(&RunFile { admin_invite_token: None, ..run_file() }).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert!(json.get("admin_invite_token").is_none());

        drop(files);
        assert!(!path.exists());
    }

    #[test]
    fn the_summary_shows_where_things_are_and_passes_no_token_as_an_argument() {
        let run_file = RunFile { admin_invite_token: Some("svc_iv_x".into()), ..run_file() };
        let summary = Summary {
            run_file: &run_file,
            run_file_path: Path::new("/d/standalone.json"),
            admin_url: "http://127.0.0.1:9090",
            sends_mails: false,
            data: Path::new("/d"),
        };
        let text = summary.to_string();
        let parts = [
            "http://127.0.0.1:8080/api/v1/docs",
            "/d/secrets/platform-token",
            "/d/mails/*.eml",
            "nats://127.0.0.1:1 ",
        ];
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
        let link = "http://127.0.0.1:8080/api/v1/pages/accept-invite#token=svc_iv_x";
        let lines = ["  invite token    svc_iv_x\n".to_owned(), format!("  invite link     {link}\n")];
        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
        assert_eq!(text.matches("svc_iv_x").count(), lines.len(), "{text}");
        // A command that asks would read a line that is pasted after it.
        for asking in [" users accept-invite ", " auth login "] {
            let (_, after) = text.split_once(asking).unwrap();
            assert_eq!(after.lines().nth(1), Some(""), "{text}");
        }
    }

    #[test]
    fn a_path_is_quoted_as_one_shell_word() {
        assert_eq!(shell_word("/a-b/svc_1.0"), "/a-b/svc_1.0");
        assert_eq!(shell_word("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(shell_word("/$HOME/svc"), "'/$HOME/svc'");
    }
}
