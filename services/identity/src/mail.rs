//! Outgoing mail: content, MIME message, and the two delivery methods (SMTP, files in a directory).

mod letter;
mod message;
pub(crate) mod smtp;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use hashing::TokenDigest;
use lettre::message::Mailbox;

pub(crate) use self::letter::Letter;
pub(crate) use self::message::{Stamp, message};
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
