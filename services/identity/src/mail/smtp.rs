//! Mails through a mail server (RFC 5321), as a client of its submission service.
//!
//! A conversation a mail, over TLS unless told otherwise. What the server has accepted is sent, however the conversation
//! ends after that; whatever happens before counts as not sent.

mod server;

use std::error::Error as _;
use std::time::Duration;

use lettre::Message;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};

pub(crate) use self::server::{Encryption, Server};

/// How long the server may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// How much of what a server says is kept.
const MOST_SAID: usize = 200;

/// A mail server, and how to talk to it.
#[derive(Clone)]
pub(crate) struct Smtp {
    /// Where it is.
    pub(crate) server: Server,
    /// Who we say we are.
    pub(crate) hello: ClientId,
    /// How long a mail may take, from the connection until the server has accepted it.
    pub(crate) limit: Duration,
}

/// Why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmtpError {
    /// The server cannot be reached or will not talk to us: nothing that this mail could help.
    #[error("the mail server cannot be used: {0}")]
    Server(String),
    /// The server does not want our user or password; what it says may repeat them.
    #[error("the mail server refused the user or the password")]
    Credentials,
    /// Refused for now.
    #[error("the mail server refused the mail for now: {0}")]
    Deferred(String),
    /// Refused for ever: the address is unknown, or the mail is not wanted.
    #[error("the mail server refused the mail: {0}")]
    Refused(String),
    /// Only for addresses in other scripts before the `@`.
    #[error("the mail server takes no addresses beyond ASCII (SMTPUTF8)")]
    Script,
    /// It did not answer; whether it has the mail is not known.
    #[error("the mail server took longer than {0:?}")]
    Slow(Duration),
}

impl SmtpError {
    /// Whether it is of no use to try again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Script)
    }
}

impl Smtp {
    /// Sends a mail.
    pub(crate) async fn send(&self, message: &Message) -> Result<(), SmtpError> {
        let sending = tokio::time::timeout(self.limit, self.converse(message));
        let mut connection = sending.await.map_err(|_| SmtpError::Slow(self.limit))??;
        let _ = tokio::time::timeout(GOODBYE, connection.quit()).await;
        Ok(())
    }

    async fn converse(&self, message: &Message) -> Result<AsyncSmtpConnection, SmtpError> {
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
                return Err(SmtpError::Script);
            }
            parameters
                .extend([MailParameter::SmtpUtfEight, MailParameter::Body(MailBodyParameter::EightBitMime)]);
        }
        let sender = Mail::new(envelope.from().cloned(), parameters);
        connection.command(sender).await.map_err(|error| of_server(&error))?;
        for recipient in envelope.to() {
            let recipient = Rcpt::new(recipient.clone(), Vec::new());
            connection.command(recipient).await.map_err(|error| of_mail(&error))?;
        }
        connection.command(Data).await.map_err(|error| of_mail(&error))?;
        connection.message(&bytes).await.map_err(|error| of_mail(&error))?;
        Ok(connection)
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let Server { host, port, encryption, credentials } = &self.server;
        let wrapped = match encryption {
            Encryption::Tls(parameters) => Some(parameters.clone()),
            Encryption::StartTls(_) | Encryption::Plain => None,
        };
        let address = (host.as_str(), *port);
        let connecting = AsyncSmtpConnection::connect_tokio1(address, None, &self.hello, wrapped, None);
        let mut connection = connecting.await.map_err(|error| of_server(&error))?;
        if let Encryption::StartTls(parameters) = encryption {
            connection.starttls(parameters.clone(), &self.hello).await.map_err(|error| of_server(&error))?;
        }
        if let Some(credentials) = credentials {
            let authenticated = connection.auth(server::MECHANISMS, credentials).await;
            authenticated.map_err(|error| match error.status() {
                Some(_) => SmtpError::Credentials,
                None => of_server(&error),
            })?;
        }
        Ok(connection)
    }
}

/// Before the recipient is named, even a final refusal is about the server or its configuration.
fn of_server(error: &Error) -> SmtpError {
    SmtpError::Server(said(error))
}

fn of_mail(error: &Error) -> SmtpError {
    if error.is_permanent() {
        SmtpError::Refused(said(error))
    } else if error.is_transient() {
        SmtpError::Deferred(said(error))
    } else {
        SmtpError::Server(said(error))
    }
}

/// What the server or the network says, for a log: on one line, not too long, and not at all where it repeats a token.
fn said(error: &Error) -> String {
    let text = match (error.status(), error.source()) {
        (Some(code), Some(words)) => format!("{code} {words}"),
        _ => error.to_string(),
    };
    if text.contains("svc_") {
        return error.status().map_or_else(|| "no plain answer".to_owned(), |code| code.to_string());
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_SAID).collect()
}
