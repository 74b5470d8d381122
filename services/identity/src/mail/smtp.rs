//! SMTP client (RFC 5321) for a submission service.
//!
//! One connection per mail, over TLS unless configured otherwise. A mail counts as sent when the server has accepted its
//! data, and as not sent after every earlier error.

mod server;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lettre::Message;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use service::config::Live;

pub(crate) use self::server::{Encryption, Server};

/// Timeout of QUIT.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a server reply in a log message.
const MAX_REPLY: usize = 200;

/// A client for one mail server.
#[derive(Clone)]
pub(crate) struct Smtp {
    /// Address, encryption and credentials of the server, read for each connection.
    pub(crate) server: Live<Server>,
    /// File of certificates that are trusted in addition to those of the system, read for each connection.
    pub(crate) authorities: Option<PathBuf>,
    /// The name in EHLO.
    pub(crate) hello: ClientId,
    /// Timeout of one mail, from connecting until the server has accepted it.
    pub(crate) timeout: Duration,
}

/// Why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmtpError {
    /// The server cannot be reached or rejects the session. The cause is not this mail.
    #[error("mail server unavailable: {0}")]
    Server(String),
    /// The server rejects the credentials. Its reply is omitted because it can repeat them.
    #[error("the mail server rejected the user name or password; check SVC_SMTP_URL")]
    Credentials,
    /// A transient rejection (4yz).
    #[error("the mail server deferred the mail: {0}")]
    Deferred(String),
    /// A permanent rejection (5yz).
    #[error("the mail server rejected the mail: {0}")]
    Rejected(String),
    /// The local part of the address is not ASCII and the server does not support it.
    #[error("the mail server does not support addresses outside ASCII (SMTPUTF8)")]
    Utf8Address,
    /// The server did not reply in time. The server may have accepted the mail.
    #[error("the mail server did not reply within {0:?}")]
    Timeout(Duration),
}

/// The error of the last attempt for the administrator of a tenant: what concerns the mail, and nothing about the installation.
pub(crate) fn reason_for_tenant(last_error: &str) -> String {
    const ABOUT_THE_MAIL: [&str; 5] = [
        "the mail server deferred the mail: ",
        "the mail server rejected the mail: ",
        "the mail server does not support ",
        "the mail server did not reply ",
        "the recipient's address ",
    ];
    if ABOUT_THE_MAIL.iter().any(|start| last_error.starts_with(start)) {
        last_error.to_owned()
    } else {
        "the mail could not be handed to the mail server; the platform administrator can see why".to_owned()
    }
}

impl SmtpError {
    /// Returns whether a retry cannot succeed.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::Utf8Address)
    }
}

impl Smtp {
    /// Sends a mail.
    pub(crate) async fn send(&self, message: &Message) -> Result<(), SmtpError> {
        let sending = tokio::time::timeout(self.timeout, self.transmit(message));
        let mut connection = sending.await.map_err(|_| SmtpError::Timeout(self.timeout))??;
        let _ = tokio::time::timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(())
    }

    async fn transmit(&self, message: &Message) -> Result<AsyncSmtpConnection, SmtpError> {
        let (envelope, bytes) = (message.envelope(), message.formatted());
        let mut connection = self.connect().await?;
        let mut parameters = Vec::new();
        if !envelope
            .to()
            .iter()
            .chain(envelope.from())
            .all(|address| AsRef::<str>::as_ref(address).is_ascii())
        {
            if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
                return Err(SmtpError::Utf8Address);
            }
            parameters
                .extend([MailParameter::SmtpUtfEight, MailParameter::Body(MailBodyParameter::EightBitMime)]);
        }
        let sender = Mail::new(envelope.from().cloned(), parameters);
        connection.command(sender).await.map_err(|error| session_error(&error))?;
        for recipient in envelope.to() {
            let recipient = Rcpt::new(recipient.clone(), Vec::new());
            connection.command(recipient).await.map_err(|error| mail_error(&error))?;
        }
        connection.command(Data).await.map_err(|error| mail_error(&error))?;
        connection.message(&bytes).await.map_err(|error| mail_error(&error))?;
        Ok(connection)
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let server = self.server.get();
        let Server { host, port, encryption, credentials } = &*server;
        let tls = || self.tls(host).map_err(SmtpError::Server);
        let implicit_tls = if *encryption == Encryption::Tls { Some(tls()?) } else { None };
        let address = (host.as_str(), *port);
        let connecting = AsyncSmtpConnection::connect_tokio1(address, None, &self.hello, implicit_tls, None);
        let mut connection = connecting.await.map_err(|error| session_error(&error))?;
        if *encryption == Encryption::StartTls {
            connection.starttls(tls()?, &self.hello).await.map_err(|error| session_error(&error))?;
        }
        if let Some(credentials) = credentials {
            let authenticated = connection.auth(server::MECHANISMS, credentials).await;
            authenticated.map_err(|error| match error.status() {
                Some(_) => SmtpError::Credentials,
                None => session_error(&error),
            })?;
        }
        Ok(connection)
    }

    fn tls(&self, host: &str) -> Result<TlsParameters, String> {
        let mut builder = TlsParameters::builder(host.to_owned());
        if let Some(file) = &self.authorities {
            let certificate = certificates(file).map_err(|error| format!("SVC_SMTP_CA_FILE: {error}"))?;
            builder = builder.add_root_certificate(certificate);
        }
        builder.build().map_err(|error| error.to_string())
    }
}

/// Reads a file of certificates (PEM).
pub(crate) fn certificates(file: &Path) -> Result<Certificate, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    if !pem.windows(27).any(|text| text == b"-----BEGIN CERTIFICATE-----") {
        return Err("the file contains no PEM certificate".to_owned());
    }
    Certificate::from_pem(&pem).map_err(|error| error.to_string())
}

/// Before RCPT, even a permanent reply concerns the server or its configuration, not the mail.
fn session_error(error: &Error) -> SmtpError {
    SmtpError::Server(with_advice(&reply(error)))
}

/// Adds what to do about an error of a certificate, of which the TLS library has only a name.
fn with_advice(text: &str) -> String {
    const OWN_CA: &str = "the certificate of the server is a CA certificate, which cannot identify a server; create it with \
        basicConstraints=CA:FALSE, or use the CA to sign a certificate for the server";
    const UNTRUSTED: &str = "the certificate of the server is not signed by a trusted CA; add the current certificate of its CA to \
        SVC_SMTP_CA_FILE";
    let advice = [("CaUsedAsEndEntity", OWN_CA), ("UnknownIssuer", UNTRUSTED), ("BadSignature", UNTRUSTED)];
    let advice = advice.iter().find(|(name, _)| text.contains(name));
    advice.map_or_else(|| text.to_owned(), |(_, advice)| format!("{text}: {advice}"))
}

fn mail_error(error: &Error) -> SmtpError {
    if error.is_permanent() {
        SmtpError::Rejected(reply(error))
    } else if error.is_transient() {
        SmtpError::Deferred(reply(error))
    } else {
        SmtpError::Server(reply(error))
    }
}

/// Returns the server reply or network error for the log: one line, truncated, and only the code if it repeats a token.
fn reply(error: &Error) -> String {
    let text = match (error.status(), error.source()) {
        (Some(code), Some(words)) => format!("{code} {words}"),
        _ => error.to_string(),
    };
    if text.contains("svc_") {
        return error.status().map_or_else(|| "reply omitted".to_owned(), |code| code.to_string());
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REPLY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_certificates_name_the_remedy() {
        for (error, remedy) in [
            ("invalid peer certificate: UnknownIssuer", Some("SVC_SMTP_CA_FILE")),
            ("invalid peer certificate: BadSignature", Some("SVC_SMTP_CA_FILE")),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", Some("CA:FALSE")),
            ("connection refused", None),
        ] {
            let text = with_advice(error);
            assert!(text.starts_with(error) && remedy.is_none_or(|remedy| text.contains(remedy)), "{text}");
            assert_eq!(text == error, remedy.is_none(), "{text}");
        }
    }

    #[test]
    fn the_administrator_of_a_tenant_sees_replies_about_the_mail_and_nothing_about_the_installation() {
        let reply = || "550 5.1.1 no such user".to_owned();
        for (error, is_shown) in [
            (SmtpError::Deferred(reply()), true),
            (SmtpError::Rejected(reply()), true),
            (SmtpError::Utf8Address, true),
            (SmtpError::Timeout(Duration::from_secs(30)), true),
            (SmtpError::Server("smtp.internal: connection refused".to_owned()), false),
            (SmtpError::Credentials, false),
        ] {
            let text = error.to_string();
            assert_eq!(reason_for_tenant(&text) == text, is_shown, "{text}");
        }
        let address = crate::mail::MessageError::Address.to_string();
        assert_eq!(reason_for_tenant(&address), address);
    }
}
