//! What the service is told of mail.

use std::path::PathBuf;
use std::time::Duration;

use lettre::transport::smtp::client::Certificate;
use lettre::transport::smtp::extension::ClientId;
use service::config::{Reader, Variable};
use url::{Host, Url};

use super::plain;
use crate::mail::smtp::{Server, Smtp};
use crate::mail::{MailSettings, Route};

pub(super) const FROM: Variable =
    plain("SVC_MAIL_FROM", "mailbox", "svc <no-reply@localhost>", "Who mails come from.");
pub(super) const SMTP_URL: Variable = Variable {
    name: "SVC_SMTP_URL",
    form: "smtps://user:password@host:465, or smtp://user:password@host:587",
    default: None,
    secret: true,
    meaning: "The mail server: `smtps` is TLS from the start, `smtp` is STARTTLS, without which nothing is sent; nothing is encrypted on loopback, or where `?tls=none` stands at the end. Without it, and without `SVC_MAIL_DIR`, no mail can be sent.",
};
pub(super) const SMTP_CA_FILE: Variable = Variable {
    name: "SVC_SMTP_CA_FILE",
    form: "file of certificates (PEM)",
    default: None,
    secret: false,
    meaning: "Who may vouch for the mail server, beside the authorities that the machine trusts.",
};
pub(super) const SMTP_TIMEOUT: Variable = plain(
    "SVC_SMTP_TIMEOUT",
    "duration, 1s to 5min",
    "30s",
    "How long a mail may take, from the connection until the mail server has accepted it.",
);
pub(super) const DIR: Variable = Variable {
    name: "SVC_MAIL_DIR",
    form: "directory",
    default: None,
    secret: false,
    meaning: "Mails are written into this directory, a file each, instead of being sent.",
};

/// Reads it; `public_url` says who we are to the mail server.
pub(super) fn read(read: &mut Reader<'_>, public_url: Option<&Url>) -> Option<MailSettings> {
    let from = read.required(&FROM);
    let roots = read.optional_with(&SMTP_CA_FILE, certificates);
    let limit = read.duration(&SMTP_TIMEOUT, Duration::from_secs(1), Duration::from_mins(5));
    let server = {
        let roots = roots.as_ref().and_then(Option::as_ref);
        read.optional_with(&SMTP_URL, |text| Server::parse(text, roots.map_or(&[], Vec::as_slice)))
    };
    let directory: Option<Option<PathBuf>> = read.optional(&DIR);
    roots?;
    let route = match (server?, directory?) {
        (Some(_), Some(_)) => {
            read.fault("SVC_SMTP_URL and SVC_MAIL_DIR are both set: mails are either sent or written to files, so keep one of them");
            return None;
        }
        (Some(server), None) => {
            Some(Route::Smtp(Box::new(Smtp { server, hello: hello(public_url?), limit: limit? })))
        }
        (None, Some(directory)) => Some(Route::Folder(directory)),
        (None, None) => None,
    };
    Some(MailSettings { from: from?, route })
}

fn certificates(path: &str) -> Result<Vec<Certificate>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    if !pem.windows(27).any(|text| text == b"-----BEGIN CERTIFICATE-----") {
        return Err("there is no certificate in it".to_owned());
    }
    let certificates = Certificate::from_pem(&pem).map_err(|error| error.to_string())?;
    Ok(vec![certificates])
}

/// RFC 5321, section 4.1.4: a name that others know, or the address.
fn hello(public_url: &Url) -> ClientId {
    match public_url.host() {
        Some(Host::Ipv4(address)) => ClientId::Ipv4(address),
        Some(Host::Ipv6(address)) => ClientId::Ipv6(address),
        Some(Host::Domain(name)) => ClientId::Domain(name.to_owned()),
        None => ClientId::default(),
    }
}

#[cfg(test)]
mod tests {
    use service::config::{ConfigErrors, Environment};

    use super::*;

    fn route(pairs: &[(&str, &str)]) -> Result<Option<Route>, ConfigErrors> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let mut reader = Reader::new(&environment);
        let url = "https://svc.example".parse().unwrap();
        let settings = read(&mut reader, Some(&url));
        reader.finish(|| Some(settings?.route))
    }

    #[test]
    fn mails_are_sent_or_written_to_files_or_neither() {
        assert!(route(&[]).unwrap().is_none());
        assert!(matches!(route(&[("SVC_MAIL_DIR", "/mails")]), Ok(Some(Route::Folder(_)))));
        let Ok(Some(Route::Smtp(smtp))) = route(&[("SVC_SMTP_URL", "smtp://localhost")]) else {
            panic!("no mail server")
        };
        assert_eq!(
            (smtp.hello, smtp.limit),
            (ClientId::Domain("svc.example".to_owned()), Duration::from_secs(30))
        );
    }

    #[test]
    fn faults_are_told_without_the_password() {
        let faults = |pairs: &[(&str, &str)]| route(pairs).err().unwrap().0;
        assert_eq!(
            faults(&[("SVC_SMTP_URL", "smtp://localhost"), ("SVC_MAIL_DIR", "/mails")]),
            [
                "SVC_SMTP_URL and SVC_MAIL_DIR are both set: mails are either sent or written to files, so keep one of them"
            ]
        );
        assert_eq!(
            faults(&[("SVC_SMTP_URL", "smtp://svc:hunter2@mail.example?tls=never")]),
            [
                "SVC_SMTP_URL: not of the form smtps://user:password@host:465, or smtp://user:password@host:587"
            ]
        );
        let bundle = tempfile::NamedTempFile::new().unwrap();
        let path = bundle.path().to_str().unwrap();
        let told = faults(&[("SVC_SMTP_URL", "smtp://localhost"), ("SVC_SMTP_CA_FILE", path)]);
        assert!(told[0].contains("there is no certificate in it"), "{told:?}");
    }
}
