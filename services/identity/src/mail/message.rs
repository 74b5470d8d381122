//! The MIME message of a mail (RFC 5322): `multipart/alternative` with plain text and HTML.

use chrono::{DateTime, Utc};
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MultiPart, SinglePart};
use lettre::{Address, Message};
use uuid::Uuid;

use super::Mail;

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
    pub(crate) mail_id: Uuid,
    /// The time of the delivery attempt.
    pub(crate) date: DateTime<Utc>,
}

/// Builds the message. The message id is the same at each attempt, except if the mail contains a token (see [`Mail::token`]).
pub(crate) fn message(from: &Mailbox, mail: &Mail, stamp: Stamp) -> Result<Message, MessageError> {
    let (Stamp { mail_id, date }, domain) = (stamp, from.email.domain());
    let message_id = match mail.token {
        Some(digest) => format!("<{mail_id}.{digest:?}@{domain}>"),
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
