//! Outgoing mail: content, MIME message, and the two delivery methods (SMTP, files in a directory).

mod letter;
pub(crate) mod smtp;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use hashing::TokenDigest;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MultiPart, SinglePart};
use lettre::{Address, Message};
use tenancy::OutboxId;

pub(crate) use self::letter::Letter;
use self::smtp::Smtp;

/// A mail to one recipient. It can contain a token.
pub(crate) struct Mail {
    /// The recipient's address as typed.
    pub(crate) to: String,
    /// The content.
    pub(crate) letter: Letter,
    /// The digest of the token in the mail. Each delivery attempt creates a new token and is a different mail, so the digest is
    /// part of the message id: a mail store must not drop the second mail as a duplicate of the first.
    pub(crate) token: Option<TokenDigest>,
}

/// The delivery method.
#[derive(Clone)]
pub(crate) enum Delivery {
    /// Files in a directory, for local use and tests.
    Directory(PathBuf),
    /// An SMTP server.
    Smtp(Box<Smtp>),
}

/// The mail configuration.
#[derive(Clone)]
pub(crate) struct MailSettings {
    /// The sender.
    pub(crate) from: Mailbox,
    /// The delivery method; `None` if mail is not configured.
    pub(crate) delivery: Option<Delivery>,
}

/// Why no message can be built. The error is permanent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("the recipient's address cannot receive mail")]
    Address,
    #[error("failed to render the mail")]
    Template(#[from] askama::Error),
    #[error("failed to build the mail")]
    Message(#[from] lettre::error::Error),
}

/// The identity of a message.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    /// The id of the outbox message.
    pub(crate) mail_id: OutboxId,
    /// The time of the delivery attempt.
    pub(crate) date: DateTime<Utc>,
}

/// Builds the MIME message of a mail (RFC 5322): `multipart/alternative` with plain text and HTML. The message id is the same at each attempt, except if the mail contains a token (see [`Mail::token`]).
pub(crate) fn message(from: &Mailbox, mail: &Mail, stamp: Stamp) -> Result<Message, MessageError> {
    let (Stamp { mail_id, date }, domain) = (stamp, from.email.domain());
    let message_id = match mail.token {
        Some(digest) => format!("<{mail_id}.{}@{domain}>", digest.prefix()),
        None => format!("<{mail_id}@{domain}>"),
    };
    // RFC 3834, section 5: prevents automatic replies.
    let automatic =
        HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned());
    let (text, html) = (mail.letter.text()?, mail.letter.html()?);
    let parts = MultiPart::alternative()
        .singlepart(part(ContentType::TEXT_PLAIN, text))
        .singlepart(part(ContentType::TEXT_HTML, html));
    let message = Message::builder()
        .from(from.clone())
        .to(Mailbox::new(None, address(&mail.to)?))
        .subject(&mail.letter.subject)
        .message_id(Some(message_id))
        .date(date.into())
        .raw_header(automatic)
        .multipart(parts)?;
    Ok(message)
}

/// Returns the address with its domain in ASCII form (IDNA), so that the mail server needs no SMTPUTF8 for the domain.
fn address(typed: &str) -> Result<Address, MessageError> {
    let (local, domain) = typed.rsplit_once('@').ok_or(MessageError::Address)?;
    let domain = idna::domain_to_ascii_strict(domain).map_err(|_| MessageError::Address)?;
    Address::new(local, domain).map_err(|_| MessageError::Address)
}

/// Sends ASCII unencoded in lines of up to 998 characters (RFC 5322, section 2.1.1). Quoted-printable would split long links,
/// which then cannot be copied from a mail file.
fn part(content_type: ContentType, content: String) -> SinglePart {
    let plain = content.is_ascii() && content.lines().all(|line| line.len() <= 998);
    let body = if plain {
        let lines = content.replace('\n', "\r\n").into_bytes();
        Body::dangerous_pre_encoded(lines, ContentTransferEncoding::SevenBit)
    } else {
        Body::new(content)
    };
    SinglePart::builder().header(content_type).body(body)
}

/// Writes a mail to a file that only its owner can read. The file appears complete or not at all.
pub(crate) async fn write_file(directory: PathBuf, name: String, bytes: Vec<u8>) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || write_file_blocking(&directory, &name, &bytes));
    written.await.map_err(io::Error::other)?
}

fn write_file_blocking(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let partial = directory.join(format!(".{name}.partial"));
    // Created new and never followed: another user of the directory could have placed a link.
    let _ = std::fs::remove_file(&partial);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, directory.join(name))
}
