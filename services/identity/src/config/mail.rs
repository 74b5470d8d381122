//! The mail configuration.

use std::path::PathBuf;
use std::time::Duration;

use lettre::transport::smtp::client::Certificate;
use lettre::transport::smtp::extension::ClientId;
use service::config::{Reader, Variable};
use url::{Host, Url};

use super::plain;
use crate::mail::smtp::{Server, Smtp};
use crate::mail::{Delivery, MailSettings};

pub(super) const FROM: Variable =
    plain("SVC_MAIL_FROM", "mailbox", "svc <no-reply@localhost>", "Sender of mails.");
pub(super) const SMTP_URL: Variable = Variable {
    name: "SVC_SMTP_URL",
    form: "smtps://user:password@host:465, or smtp://user:password@host:587",
    default: None,
    secret: true,
    meaning: "Mail server. `smtps` uses implicit TLS, `smtp` requires STARTTLS. Unencrypted on loopback or with `?tls=none`. If neither this nor `SVC_MAIL_DIR` is set, no mail is sent.",
};
pub(super) const SMTP_CA_FILE: Variable = Variable {
    name: "SVC_SMTP_CA_FILE",
    form: "file of certificates (PEM)",
    default: None,
    secret: false,
    meaning: "Additional CA certificates (PEM) trusted for the mail server.",
};
pub(super) const SMTP_TIMEOUT: Variable = plain(
    "SVC_SMTP_TIMEOUT",
    "duration, 1s to 5min",
    "30s",
    "Timeout of one mail, from connecting until the mail server has accepted it.",
);
pub(super) const DIR: Variable = Variable {
    name: "SVC_MAIL_DIR",
    form: "directory",
    default: None,
    secret: false,
    meaning: "Directory to which mails are written as files instead of being sent.",
};

/// Reads the mail configuration. The host of `public_url` is the name in EHLO.
pub(super) fn read(read: &mut Reader<'_>, public_url: Option<&Url>) -> Option<MailSettings> {
    let from = read.required(&FROM);
    let roots = read.optional_with(&SMTP_CA_FILE, certificates);
    let timeout = read.duration(&SMTP_TIMEOUT, Duration::from_secs(1), Duration::from_mins(5));
    let server = {
        let roots = roots.as_ref().and_then(Option::as_ref);
        read.optional_with(&SMTP_URL, |text| Server::parse(text, roots.map_or(&[], Vec::as_slice)))
    };
    let directory: Option<Option<PathBuf>> = read.optional(&DIR);
    roots?;
    let delivery = match (server?, directory?) {
        (Some(_), Some(_)) => {
            read.fault("SVC_SMTP_URL and SVC_MAIL_DIR are both set; remove one of them");
            return None;
        }
        (Some(server), None) => {
            Some(Delivery::Smtp(Box::new(Smtp { server, hello: hello(public_url?), timeout: timeout? })))
        }
        (None, Some(directory)) => Some(Delivery::Directory(directory)),
        (None, None) => None,
    };
    Some(MailSettings { from: from?, delivery })
}

fn certificates(path: &str) -> Result<Vec<Certificate>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    if !pem.windows(27).any(|text| text == b"-----BEGIN CERTIFICATE-----") {
        return Err("the file contains no PEM certificate".to_owned());
    }
    let certificates = Certificate::from_pem(&pem).map_err(|error| error.to_string())?;
    Ok(vec![certificates])
}

/// Returns the EHLO name: a domain name or an address literal (RFC 5321, section 4.1.4).
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

    fn delivery(pairs: &[(&str, &str)]) -> Result<Option<Delivery>, ConfigErrors> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let mut reader = Reader::new(&environment);
        let url = "https://svc.example".parse().unwrap();
        let settings = read(&mut reader, Some(&url));
        reader.finish(|| Some(settings?.delivery))
    }

    #[test]
    fn selects_smtp_or_directory_or_none() {
        assert!(delivery(&[]).unwrap().is_none());
        assert!(matches!(delivery(&[("SVC_MAIL_DIR", "/mails")]), Ok(Some(Delivery::Directory(_)))));
        let Ok(Some(Delivery::Smtp(smtp))) = delivery(&[("SVC_SMTP_URL", "smtp://localhost")]) else {
            panic!("expected SMTP delivery")
        };
        assert_eq!(
            (smtp.hello, smtp.timeout),
            (ClientId::Domain("svc.example".to_owned()), Duration::from_secs(30))
        );
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        let errors = |pairs: &[(&str, &str)]| delivery(pairs).err().unwrap().0;
        assert_eq!(
            errors(&[("SVC_SMTP_URL", "smtp://localhost"), ("SVC_MAIL_DIR", "/mails")]),
            ["SVC_SMTP_URL and SVC_MAIL_DIR are both set; remove one of them"]
        );
        assert_eq!(
            errors(&[("SVC_SMTP_URL", "smtp://svc:hunter2@mail.example?tls=never")]),
            [
                "SVC_SMTP_URL: not of the form smtps://user:password@host:465, or smtp://user:password@host:587"
            ]
        );
        let bundle = tempfile::NamedTempFile::new().unwrap();
        let path = bundle.path().to_str().unwrap();
        let errors = errors(&[("SVC_SMTP_URL", "smtp://localhost"), ("SVC_SMTP_CA_FILE", path)]);
        assert!(errors[0].contains("the file contains no PEM certificate"), "{errors:?}");
    }
}
