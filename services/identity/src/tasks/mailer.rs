//! Hands mails over: for now as files in a directory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use database::outbox::Failure;
use lettre::Message;
use lettre::message::header::{ContentTransferEncoding, ContentType};
use lettre::message::{Body, Mailbox};
use service::Clock;
use uuid::Uuid;

/// A mail to one person. It holds a token.
pub(crate) struct Mail {
    pub(crate) to: String,
    pub(crate) subject: String,
    pub(crate) text: String,
}

/// Writes mails as files.
#[derive(Clone)]
pub(crate) struct Mailer {
    pub(crate) from: Mailbox,
    /// Where mails are written, a file each.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Mailer {
    /// Hands a mail over. `mail_id` names it, so that a second try is the same mail to whoever stores it.
    pub(crate) async fn send(&self, mail_id: Uuid, mail: Mail) -> Result<(), Failure> {
        let never = |error: &dyn std::fmt::Display| Failure::Never(error.to_string());
        let directory =
            self.directory.clone().ok_or_else(|| Failure::Later("no mail can be sent".to_owned()))?;
        let to: Mailbox = mail.to.parse().map_err(|error| never(&error))?;
        let message = Message::builder()
            .from(self.from.clone())
            .to(to)
            .subject(mail.subject)
            .message_id(Some(format!("<{mail_id}@svc>")))
            .date(std::time::SystemTime::from(self.clock.now()))
            .header(ContentType::TEXT_PLAIN)
            .body(body(mail.text))
            .map_err(|error| never(&error))?;
        let name = format!("{}-{}.eml", self.clock.now().format("%Y%m%dT%H%M%S%6f"), mail_id);
        let written = tokio::task::spawn_blocking(move || write(&directory, &name, &message.formatted()));
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::Later(format!("the mail cannot be written: {error}"))),
            Err(error) => Err(Failure::Later(error.to_string())),
        }
    }
}

/// ASCII goes out as it is, in lines as long as they are (RFC 5322 lets them have 998 characters): a link that an encoding
/// breaks in two can neither be read nor copied from a file.
fn body(text: String) -> Body {
    if text.is_ascii() && text.lines().all(|line| line.len() <= 998) {
        let lines = text.replace('\n', "\r\n").into_bytes();
        return Body::dangerous_pre_encoded(lines, ContentTransferEncoding::SevenBit);
    }
    Body::new(text)
}

/// Writes a file that its owner alone can read, whole or not at all.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let partial = directory.join(format!(".{name}.partial"));
    // Made anew, never followed: somebody else may have put a link there.
    let _ = std::fs::remove_file(&partial);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, directory.join(name))
}
