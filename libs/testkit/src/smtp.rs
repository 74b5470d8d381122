//! A mail server for one test (aiosmtpd, in `smtp_server.py`), on a free port of loopback. It stops with the test process.

use std::ffi::OsString;
use std::process::{Child, Command};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::guarded;
use crate::wait_until;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/smtp_server.py");

/// A mail server. The recipient's address selects its behaviour: see `smtp_server.py`.
pub struct MailServer {
    encryption: &'static str,
    port: u16,
    guard: Option<Child>,
    home: TempDir,
}

impl MailServer {
    /// Starts a server with `tls`, `starttls` or `none`.
    pub async fn start(encryption: &'static str) -> anyhow::Result<Self> {
        Self::start_with(encryption, IsCa::NoCa).await
    }

    /// Starts a server with a CA certificate as its own certificate, as `openssl req -x509` creates it.
    pub async fn start_as_authority(encryption: &'static str) -> anyhow::Result<Self> {
        Self::start_with(encryption, IsCa::Ca(BasicConstraints::Unconstrained)).await
    }

    async fn start_with(encryption: &'static str, is_ca: IsCa) -> anyhow::Result<Self> {
        let home = tempfile::Builder::new().prefix("mail-").tempdir()?;
        // A self-signed certificate for loopback.
        let (mut params, key) = (CertificateParams::new(["127.0.0.1".to_owned()])?, KeyPair::generate()?);
        params.is_ca = is_ca;
        std::fs::write(home.path().join("certificate.pem"), params.self_signed(&key)?.pem())?;
        std::fs::write(home.path().join("key.pem"), key.serialize_pem())?;
        let mut server = Self { encryption, port: 0, guard: None, home };
        server.guard = Some(server.spawn()?);
        server.port = wait_until("the mail server listens", async || {
            std::fs::read_to_string(server.home.path().join("port")).ok()?.trim().parse().ok()
        })
        .await;
        Ok(server)
    }

    /// Variables with which identity sends through this server. The password in the URL is percent-encoded.
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

    /// Replaces the password that the server accepts.
    pub fn set_password(&self, password: &str) {
        std::fs::write(self.home.path().join("password"), password).expect("the mail directory is writable");
    }

    /// The accepted mails, oldest first.
    pub fn mails(&self) -> Vec<Value> {
        self.mails_after(0)
    }

    /// The accepted mails except this number of the oldest ones.
    pub fn mails_after(&self, count: usize) -> Vec<Value> {
        let read = |number: usize| {
            let file = self.home.path().join(format!("{number:04}.json"));
            serde_json::from_slice(&std::fs::read(file).ok()?).ok()
        };
        (count + 1..).map_while(read).collect()
    }

    /// Waits for at least `count` mails. Returns all, oldest first.
    pub async fn wait_for_mails(&self, count: usize) -> Vec<Value> {
        wait_until("the mail server has the mails", async || {
            Some(self.mails()).filter(|mails| mails.len() >= count)
        })
        .await
    }

    /// The number of delivery attempts to an address.
    pub fn attempts(&self, address: &str) -> usize {
        let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == format!("RCPT {address}")).count()
    }

    /// Lets the server reply to mails for addresses that begin with `slow`.
    pub fn release_slow_mails(&self) {
        std::fs::write(self.home.path().join("open"), "").expect("the mail directory is writable");
    }

    /// Kills the server. The accepted mails stay.
    pub fn stop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guarded::stop(guard);
        }
    }

    /// Restarts the server on the same port.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        self.guard = Some(self.spawn()?);
        wait_until("the mail server listens", async || {
            TcpStream::connect(("127.0.0.1", self.port)).await.ok()
        })
        .await;
        Ok(())
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let home = self.home.path();
        let python = variable("SVC_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let library = variable("SVC_TEST_AIOSMTPD")
            .expect("SVC_TEST_AIOSMTPD is not set: run the tests with `make test`");
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

#[expect(clippy::disallowed_methods, reason = "the paths of test servers")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
