//! The mail configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::transport::smtp::extension::ClientId;
use service::config::{Live, Reader, Variable, Variables};
use url::{Host, Url};

use crate::mail::smtp::{self, Server, Smtp};
use crate::mail::{MailDelivery, MailSettings, sender};

service::variables! {
    struct MailVariables {
        /// Sender of mails. An address without a name gets `SVC_PRODUCT_NAME` as its name.
        from: Mailbox =
            Variable::new("SVC_MAIL_FROM", "mailbox").default("no-reply@localhost").required_with(sender),
        /// Mail server. `smtps` uses TLS from the start; `smtp` requires STARTTLS. Connections to loopback addresses and URLs with
        /// `?tls=none` are not encrypted. Without `SVC_SMTP_URL` and `SVC_MAIL_DIR`, no mail can be sent. A changed file is used for the
        /// next mail.
        server: Option<Live<Server>> =
            Variable::new("SVC_SMTP_URL", "smtps://user:password@host:465, or smtp://user:password@host:587")
                .secret()
                .optional_live(Server::parse),
        /// Additional CA certificates that are trusted for the mail server. The file is read at each connection.
        authorities: Option<PathBuf> =
            Variable::new("SVC_SMTP_CA_FILE", "file of certificates (PEM)").optional_with(certificate_file),
        /// Timeout for sending one mail, from the connection to the response of the mail server.
        timeout: Duration = Variable::new("SVC_SMTP_TIMEOUT", "duration, 1s to 5m")
            .default("30s")
            .duration(Duration::from_secs(1), Duration::from_mins(5)),
        /// Connections to the mail server for invites, and as many for all other mails, per replica.
        connections: u8 = Variable::new("SVC_SMTP_CONNECTIONS", "number, 1 to 64").default("4").between(1, 64),
        /// Directory into which mails are written as files instead of being sent.
        directory: Option<PathBuf> = Variable::new("SVC_MAIL_DIR", "directory").optional(),
    }
}

fn certificate_file(path: &str) -> Result<PathBuf, String> {
    smtp::certificates(Path::new(path)).map(|_| PathBuf::from(path))
}

impl Variables for MailSettings {
    fn variables() -> Vec<Variable> {
        MailVariables::variables()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let MailVariables { from, server, authorities, timeout, connections, directory } =
            MailVariables::read(reader)?;
        let delivery = match (server, directory) {
            (Some(_), Some(_)) => {
                reader.error("SVC_SMTP_URL and SVC_MAIL_DIR are both set; remove one of them");
                return None;
            }
            (Some(server), None) => Some(MailDelivery::Smtp(Box::new(Smtp {
                server,
                authorities,
                hello: ClientId::default(),
                timeout,
            }))),
            (None, directory) => directory.map(MailDelivery::Directory),
        };
        Some(Self { from, delivery, connections })
    }
}

impl MailSettings {
    /// Names a sender without a name after the product.
    pub(crate) fn set_sender_name(&mut self, product: &str) {
        self.from.name.get_or_insert_with(|| product.to_owned());
    }

    /// Sets the EHLO name: the host of the public URL, a domain name or an address literal (RFC 5321, section 4.1.4).
    pub(crate) fn set_ehlo_name(&mut self, public_url: &Url) {
        if let Some(MailDelivery::Smtp(smtp)) = &mut self.delivery {
            smtp.hello = match public_url.host() {
                Some(Host::Ipv4(address)) => ClientId::Ipv4(address),
                Some(Host::Ipv6(address)) => ClientId::Ipv6(address),
                Some(Host::Domain(name)) => ClientId::Domain(name.to_owned()),
                None => ClientId::default(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use service::config::{ConfigErrors, Environment};

    use super::*;

    fn delivery(pairs: &[(&str, &str)]) -> Result<Option<MailDelivery>, ConfigErrors> {
        let mut settings = MailSettings::load(&Environment::from_pairs(pairs.iter().copied()))?;
        settings.set_ehlo_name(&"https://svc.example".parse().unwrap());
        Ok(settings.delivery)
    }

    #[test]
    fn selects_smtp_or_directory_or_none() {
        assert!(delivery(&[]).unwrap().is_none());
        assert!(matches!(delivery(&[("SVC_MAIL_DIR", "/mails")]), Ok(Some(MailDelivery::Directory(_)))));
        let Ok(Some(MailDelivery::Smtp(smtp))) = delivery(&[("SVC_SMTP_URL", "smtp://localhost")]) else {
            panic!("expected SMTP delivery")
        };
        assert_eq!(
            (smtp.hello, smtp.timeout),
            (ClientId::Domain("svc.example".to_owned()), Duration::from_secs(30))
        );
    }

    #[test]
    fn a_sender_without_a_name_is_named_after_the_product() {
        for (from, expected) in [
            (None, "Acme Cloud <no-reply@localhost>"),
            (Some("mail@acme.example"), "Acme Cloud <mail@acme.example>"),
            (Some("Accounts <mail@acme.example>"), "Accounts <mail@acme.example>"),
        ] {
            let pairs = from.map(|from| ("SVC_MAIL_FROM", from));
            let mut settings = MailSettings::load(&Environment::from_pairs(pairs)).unwrap();
            settings.set_sender_name("Acme Cloud");
            assert_eq!(settings.from.to_string(), expected);
        }
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
                "SVC_SMTP_URL: invalid value (expected smtps://user:password@host:465, or smtp://user:password@host:587)"
            ]
        );
        let bundle = tempfile::NamedTempFile::new().unwrap();
        let path = bundle.path().to_str().unwrap();
        let errors = errors(&[("SVC_SMTP_URL", "smtp://localhost"), ("SVC_SMTP_CA_FILE", path)]);
        assert!(errors[0].contains("the file contains no PEM certificate"), "{errors:?}");
    }
}
