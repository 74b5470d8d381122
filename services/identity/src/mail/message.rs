//! A mail as it is on the wire (RFC 5322, MIME): text and HTML, one of them to be shown.

use chrono::{DateTime, Utc};
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MultiPart, SinglePart};
use lettre::{Address, Message};
use uuid::Uuid;

use super::Mail;

/// No mail can be made of it, now or ever.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsendable {
    #[error("mail cannot be sent to this address")]
    Address,
    #[error("the mail cannot be written")]
    Template(#[from] askama::Error),
    #[error("the mail cannot be written")]
    Message(#[from] lettre::error::Error),
}

/// What tells a mail from all others.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    /// The outbox row that asked for it.
    pub(crate) mail_id: Uuid,
    /// When it is sent.
    pub(crate) date: DateTime<Utc>,
}

/// Puts a mail together. Its id is the same at each try, unless the mail is not: see [`Mail::token`].
pub(crate) fn message(from: &Mailbox, mail: &Mail, stamp: Stamp) -> Result<Message, Unsendable> {
    let (Stamp { mail_id, date }, domain) = (stamp, from.email.domain());
    let message_id = match mail.token {
        Some(digest) => format!("<{mail_id}.{digest:?}@{domain}>"),
        None => format!("<{mail_id}@{domain}>"),
    };
    // RFC 3834, section 5: nobody's holiday shall answer it.
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

/// The address with its domain as DNS has it, so that the mail server need not know of other scripts.
fn address(typed: &str) -> Result<Address, Unsendable> {
    let (local, domain) = typed.rsplit_once('@').ok_or(Unsendable::Address)?;
    let domain = idna::domain_to_ascii_strict(domain).map_err(|_| Unsendable::Address)?;
    Address::new(local, domain).map_err(|_| Unsendable::Address)
}

/// ASCII goes out as it is, in lines as long as they are (RFC 5322 lets them have 998 characters): a link that an encoding
/// breaks in two can neither be read nor copied from a file.
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
