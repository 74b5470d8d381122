//! Outgoing mail: what a mail says, what it is on the wire, and the two ways it leaves by.

pub(crate) mod folder;
mod letter;
mod message;
pub(crate) mod smtp;

use std::path::PathBuf;

use hashing::TokenDigest;
use lettre::message::Mailbox;

pub(crate) use self::letter::{Action, Letter, one_line, origin};
pub(crate) use self::message::{Stamp, message};
use self::smtp::Smtp;

/// A mail to one person. It may hold a token.
pub(crate) struct Mail {
    /// The address, as the person typed it.
    pub(crate) to: String,
    /// What it says.
    pub(crate) letter: Letter,
    /// The digest of its token. Each try to send makes a token of its own, so that a second try is another mail: whoever
    /// stores mails must not take it for the first, whose token is dead.
    pub(crate) token: Option<TokenDigest>,
}

/// How mails leave.
#[derive(Clone)]
pub(crate) enum Route {
    /// As files in a directory.
    Folder(PathBuf),
    /// Through a mail server.
    Smtp(Box<Smtp>),
}

/// What the configuration says of mail.
#[derive(Clone)]
pub(crate) struct MailSettings {
    /// Who mails come from.
    pub(crate) from: Mailbox,
    /// How they leave; without a route no mail can be sent.
    pub(crate) route: Option<Route>,
}
