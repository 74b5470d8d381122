//! A real mail server of a test's own (aiosmtpd, in `smtp_server.py`), on a free port of loopback; it dies with the test.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command};

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::guarded;
use crate::world::until;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/smtp_server.py");

/// A mail server. What it does with a mail is said by the address: see `smtp_server.py`.
pub struct MailServer {
    encryption: &'static str,
    port: u16,
    guard: Option<Child>,
    home: TempDir,
}

impl MailServer {
    /// Starts one that wants `tls`, `starttls`, or `none`.
    pub async fn start(encryption: &'static str) -> anyhow::Result<Self> {
        let home = tempfile::Builder::new().prefix("mail-").tempdir()?;
        let CertifiedKey { cert, signing_key } = certificate()?;
        std::fs::write(home.path().join("certificate.pem"), cert.pem())?;
        std::fs::write(home.path().join("key.pem"), signing_key.serialize_pem())?;
        let mut server = Self { encryption, port: 0, guard: None, home };
        server.guard = Some(server.spawn()?);
        server.port = until(async || {
            std::fs::read_to_string(server.home.path().join("port")).ok()?.trim().parse().ok()
        })
        .await;
        Ok(server)
    }

    /// The variables that have identity send through it; the user's password is to be percent-decoded.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        let (scheme, query) = match self.encryption {
            "tls" => ("smtps", ""),
            "starttls" => ("smtp", "?tls=required"),
            _ => ("smtp", ""),
        };
        let user = if self.encryption == "none" { "" } else { "svc:p%3Aw%2Fd@" };
        let authority = self.home.path().join("certificate.pem");
        [
            ("SVC_SMTP_URL", format!("{scheme}://{user}127.0.0.1:{}{query}", self.port)),
            ("SVC_SMTP_CA_FILE", authority.display().to_string()),
            ("SVC_MAIL_FROM", "Söhne & Co <svc@mail.example>".to_owned()),
        ]
    }

    /// What it has accepted, oldest first.
    pub fn mails(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.home.path()).expect("the directory is there");
        let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
        paths.sort();
        let read = |path: &Path| serde_json::from_slice(&std::fs::read(path).ok()?).ok();
        paths.iter().filter_map(|path| read(path)).collect()
    }

    /// The same, once there are so many.
    pub async fn until_mails(&self, count: usize) -> Vec<Value> {
        until(async || Some(self.mails()).filter(|mails| mails.len() >= count)).await
    }

    /// How often it was asked to take a mail for an address.
    pub fn attempts(&self, address: &str) -> usize {
        let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == format!("RCPT {address}")).count()
    }

    /// Kills it. What it has accepted stays.
    pub fn stop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guarded::stop(guard);
        }
    }

    /// Starts it again, on the same port.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        self.guard = Some(self.spawn()?);
        until(async || TcpStream::connect(("127.0.0.1", self.port)).await.ok()).await;
        Ok(())
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let home = self.home.path();
        let python = variable("SVC_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let library =
            variable("SVC_TEST_AIOSMTPD").expect("run the tests with `make test`: it fetches aiosmtpd");
        let mut server = Command::new(python);
        server.arg(SCRIPT).arg(home).arg(self.port.to_string()).arg(self.encryption);
        server.arg(home.join("certificate.pem")).arg(home.join("key.pem")).env("PYTHONPATH", library);
        guarded::spawn(&server, &home.join("output"))
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A certificate for loopback that vouches for itself.
fn certificate() -> Result<CertifiedKey<KeyPair>, rcgen::Error> {
    generate_simple_self_signed(["127.0.0.1".to_owned()])
}

#[expect(clippy::disallowed_methods, reason = "tests have no configuration but where their servers are")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
