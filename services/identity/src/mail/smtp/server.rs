//! Parses `SVC_SMTP_URL`.

use std::net::IpAddr;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use percent_encoding::percent_decode_str;
use url::Url;

/// Authentication mechanisms. They send the password unhashed, inside TLS.
pub(crate) const MECHANISMS: &[Mechanism] = &[Mechanism::Plain, Mechanism::Login];
/// Ports of RFC 8314: implicit TLS, and STARTTLS.
const SUBMISSIONS: u16 = 465;
const SUBMISSION: u16 = 587;

/// Address, encryption and credentials of a mail server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) encryption: Encryption,
    pub(crate) credentials: Option<Credentials>,
}

/// Encryption of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// Implicit TLS.
    Tls,
    /// STARTTLS, required: nothing is sent to a server that does not offer it.
    StartTls,
    /// None: on loopback, or with `?tls=none`.
    Plain,
}

/// The text is not the URL of a mail server.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be smtps://[user:password@]host[:port] or smtp://[user:password@]host[:port][?tls=required|none]"
)]
pub(crate) struct InvalidSmtpUrl;

impl Server {
    /// Parses `smtps://user:password@host:port` or `smtp://…` with `?tls=required` (the default, except on loopback) or
    /// `?tls=none`.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidSmtpUrl> {
        let url = Url::parse(text).map_err(|_| InvalidSmtpUrl)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(InvalidSmtpUrl)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(InvalidSmtpUrl);
        }
        let encryption = match (url.scheme(), url.query()) {
            ("smtps", None) => Encryption::Tls,
            ("smtp", Some("tls=none")) => Encryption::Plain,
            ("smtp", None) if is_loopback(&host) => Encryption::Plain,
            ("smtp", None | Some("tls=required")) => Encryption::StartTls,
            _ => return Err(InvalidSmtpUrl),
        };
        let default_port = if encryption == Encryption::Tls { SUBMISSIONS } else { SUBMISSION };
        let (port, credentials) = (url.port().unwrap_or(default_port), credentials(&url)?);
        Ok(Self { host, port, encryption, credentials })
    }
}

/// Returns user name and password, which must both be present or both be absent.
fn credentials(url: &Url) -> Result<Option<Credentials>, InvalidSmtpUrl> {
    let decode = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| InvalidSmtpUrl)
    };
    match (url.username(), url.password()) {
        ("", None) => Ok(None),
        ("", Some(_)) | (_, None) => Err(InvalidSmtpUrl),
        (user, Some(password)) => Ok(Some(Credentials::new(decode(user)?, decode(password)?))),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, u16, Encryption, bool)> {
        let server = Server::parse(text).ok()?;
        Some((server.host, server.port, server.encryption, server.credentials.is_some()))
    }

    #[test]
    fn connections_are_encrypted_except_on_loopback_or_with_tls_none() {
        for (text, port, encryption) in [
            ("smtps://mail.example", 465, Encryption::Tls),
            ("smtps://mail.example:2465", 2465, Encryption::Tls),
            ("smtp://mail.example", 587, Encryption::StartTls),
            ("smtp://mail.example/?tls=required", 587, Encryption::StartTls),
            ("smtp://mail.example:25?tls=none", 25, Encryption::Plain),
        ] {
            assert_eq!(read(text), Some(("mail.example".to_owned(), port, encryption, false)), "{text}");
        }
        for (text, host, encryption) in [
            ("smtp://localhost", "localhost", Encryption::Plain),
            ("smtp://127.0.0.1", "127.0.0.1", Encryption::Plain),
            ("smtp://[::1]", "::1", Encryption::Plain),
            ("smtp://127.0.0.1?tls=required", "127.0.0.1", Encryption::StartTls),
            ("smtps://[2001:db8::1]", "2001:db8::1", Encryption::Tls),
        ] {
            let server = read(text).unwrap();
            assert_eq!((server.0.as_str(), server.2), (host, encryption), "{text}");
        }
    }

    #[test]
    fn user_and_password_are_decoded() {
        let server = Server::parse("smtps://me%40example:p%3Aw%2F@mail.example").unwrap();
        assert_eq!(server.credentials, Some(Credentials::new("me@example".to_owned(), "p:w/".to_owned())));
    }

    #[test]
    fn rejects_other_urls_and_incomplete_credentials() {
        for text in [
            "mail.example:587",
            "http://mail.example",
            "smtp://",
            "smtp://mail.example?tls=opportunistic",
            "smtp://mail.example?tls=None",
            "smtps://mail.example?tls=none",
            "smtps://user@mail.example",
            "smtps://:password@mail.example",
            "smtps://mail.example/path",
            "smtps://mail.example:port",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
