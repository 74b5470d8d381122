//! Outgoing mail: content, MIME message, and the two delivery methods (SMTP, files in a directory).

mod letter;
pub(crate) mod smtp;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use hashing::TokenDigest;
use lettre::message::header::{
    ContentTransferEncoding, ContentType, From, Header as _, HeaderName, HeaderValue, Headers,
};
use lettre::message::{Body, Mailbox, Mailboxes, MultiPart, SinglePart};
use lettre::{Address, Message};
use tenancy::{InviteId, OutboxId, ResetId};

pub(crate) use self::letter::{Letter, Letterhead, Values};
use self::smtp::Smtp;
pub(crate) use self::smtp::reason_for_tenant;

/// A mail to one recipient. It can contain a token.
pub(crate) struct Mail {
    /// The recipient's address as typed.
    pub(crate) to: String,
    /// The content.
    pub(crate) letter: Letter,
    /// The token in the mail. Each delivery attempt creates a new token and is a different mail, so the digest is
    /// part of the message id: a mail store must not drop the second mail as a duplicate of the first.
    pub(crate) token: Option<MailToken>,
}

/// The token of a mail.
#[derive(Clone, Copy)]
pub(crate) struct MailToken {
    /// Its digest.
    pub(crate) digest: TokenDigest,
    /// What it is for.
    pub(crate) purpose: Purpose,
}

/// What the token of a mail is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// An invite, and the end of its term.
    Invite(InviteId, DateTime<Utc>),
    /// A password reset.
    Reset(ResetId),
}

/// The delivery method.
#[derive(Clone)]
pub(crate) enum MailDelivery {
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
    pub(crate) delivery: Option<MailDelivery>,
    /// The number of mails that are delivered at the same time: invites, and as many other mails.
    pub(crate) connections: u8,
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

/// Builds the MIME message of a mail (RFC 5322): `multipart/alternative` with plain text and HTML. The message id is the same at
/// each attempt, except if the mail contains a token (see [`Mail::token`]).
pub(crate) fn message(from: &Mailbox, mail: &Mail, stamp: Stamp) -> Result<Message, MessageError> {
    let (Stamp { mail_id, date }, domain) = (stamp, from.email.domain());
    let message_id = match mail.token {
        Some(MailToken { digest, .. }) => format!("<{mail_id}.{}@{domain}>", digest.prefix()),
        None => format!("<{mail_id}@{domain}>"),
    };
    // Both prevent automatic replies: RFC 3834, section 5, and of Exchange ([MS-OXCMAIL], section 2.2.3.2.14).
    let header = |name, value: &str| HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned());
    let automatic = header("Auto-Submitted", "auto-generated");
    let suppressed = header("X-Auto-Response-Suppress", "All");
    let (text, html) = (mail.letter.text()?, mail.letter.html()?);
    let parts = MultiPart::alternative()
        .singlepart(part(ContentType::TEXT_PLAIN, text))
        .singlepart(part(ContentType::TEXT_HTML, html));
    let builder = Message::builder().from(from.clone());
    let builder = match mail.letter.reply_to() {
        Some(support) => builder.reply_to(Mailbox::new(None, address(support.as_ref())?)),
        None => builder,
    };
    let mut message = builder
        .to(Mailbox::new(None, address(&mail.to)?))
        .subject(literal(&mail.letter.subject()))
        .message_id(Some(message_id))
        .date(date.into())
        .raw_header(automatic)
        .raw_header(suppressed)
        .multipart(parts)?;
    message.headers_mut().insert_raw(from_header(from));
    Ok(message)
}

/// The header of the sender. The library does not break the line between an encoded name and the address, so it can be longer than the
/// 76 characters that are allowed with an encoded word (RFC 2047, section 2).
fn from_header(from: &Mailbox) -> HeaderValue {
    let mut headers = Headers::new();
    headers.set(From::from(Mailboxes::from(from.clone())));
    let encoded = headers.to_string();
    let encoded = encoded.trim_start_matches("From: ").trim_end();
    let encoded =
        if encoded.contains("=?") { encoded.replace("?= <", "?=\r\n <") } else { encoded.to_owned() };
    HeaderValue::dangerous_new_pre_encoded(From::name(), from.to_string(), encoded)
}

/// Returns a text that mail programs show unchanged in the subject. The library encodes only words that are not ASCII, so a mail program
/// would decode an encoded word (RFC 2047) in the name of a tenant to other text. A character of no width breaks it.
fn literal(text: &str) -> String {
    text.replace("=?", "=\u{200b}?")
}

/// Parses the sender of mails. Its domain is also part of message ids, which are ASCII.
pub(crate) fn sender(text: &str) -> Result<Mailbox, &'static str> {
    const EXPECTED: &str = "must be an e-mail address, or a name with an e-mail address in angle brackets";
    let Mailbox { name, email } = text.parse::<Mailbox>().map_err(|_| EXPECTED)?;
    Ok(Mailbox::new(name, address(email.as_ref()).map_err(|_| EXPECTED)?))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contract::identity::{Quota, SecondFactorPolicy, Tenant};
    use contract::internal::ApiKeyNotice;
    use contract::{Scope, TenantStatus};
    use hashing::{RawToken, SystemEntropy, TokenKind};
    use service::config::{Environment, Variables as _};
    use tenancy::{KeyId, UserId};

    use super::*;
    use crate::branding::Branding;
    use crate::message::{AdminChange, FactorChange};
    use crate::texts::Language;

    /// One mail of every kind in every language. The name of the tenant is not ASCII.
    fn mails() -> Vec<Mail> {
        mails_with(&[])
    }

    fn mails_with(variables: &[(&'static str, &str)]) -> Vec<Mail> {
        let tenant = tenant("Söhne\r\nBcc: eve@evil.example".repeat(7));
        let values = Values::new("ada@acme.example", &tenant, DateTime::UNIX_EPOCH);
        let by_ada = Values { inviter: Some("ada@acme.example"), ..values };
        let token = RawToken::generate(TokenKind::Invite, &SystemEntropy);
        let api_key = ApiKeyNotice {
            key_id: KeyId::generate(),
            tenant_id: tenant.tenant_id.clone(),
            name: "fire\u{2028}walls".to_owned(),
            scopes: vec![Scope::EventsWrite],
            created_by: UserId::generate(),
            created_at: DateTime::UNIX_EPOCH,
            expires_at: DateTime::UNIX_EPOCH,
        };
        let mut mails = Vec::new();
        for language in Language::ALL {
            let head = letterhead(&[&[("SVC_LANGUAGE", language.tag())][..], variables].concat());
            let with_token =
                [head.invite(&values, &token), head.invite(&by_ada, &token), head.reset(&values, &token)];
            let (digest, purpose) = (token.digest(), Purpose::Reset(ResetId::generate()));
            let with_token = with_token.map(|letter| (letter, Some(MailToken { digest, purpose })));
            let changes = [
                AdminChange::Invited,
                AdminChange::Promoted,
                AdminChange::Demoted,
                AdminChange::FactorsReset,
            ];
            let notices = changes.map(|change| {
                [false, true].map(|affected| (head.admin_notice(change, affected, &values), None))
            });
            let others = [head.password_changed(&values), head.api_key_created(&api_key, &values)];
            let others = others.map(|letter| (letter, None));
            let of_factors = FactorChange::ALL.map(|change| (head.factor_changed(change, &values), None));
            let letters =
                with_token.into_iter().chain(others).chain(of_factors).chain(notices.into_iter().flatten());
            mails.extend(letters.map(|(letter, token)| Mail {
                to: "ada@bücher.example".to_owned(),
                letter,
                token,
            }));
        }
        mails
    }

    fn tenant(display_name: String) -> Tenant {
        Tenant {
            tenant_id: "acme".parse().unwrap(),
            display_name,
            status: TenantStatus::Active,
            quota: Quota::default(),
            second_factor: SecondFactorPolicy::Optional,
            password_min_length: 12,
            passkey_login: true,
            created_at: DateTime::UNIX_EPOCH,
            invite: None,
        }
    }

    fn letterhead(variables: &[(&'static str, &str)]) -> Arc<Letterhead> {
        let branding = Branding::load(&Environment::from_pairs(variables.iter().copied())).unwrap();
        Arc::new(Letterhead::new(&branding, &"https://svc.example".parse().unwrap()).unwrap())
    }

    /// The header fields of a message by name, unfolded.
    fn headers(message: &Message) -> Vec<(String, String)> {
        let formatted = message.formatted();
        assert!(formatted.is_ascii());
        let text = String::from_utf8(formatted).unwrap();
        assert!(text.lines().all(|line| line.len() <= 998), "RFC 5322, section 2.1.1");
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let field =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.into(), value.into())).unwrap();
        head.replace("\r\n ", " ").split("\r\n").map(field).collect()
    }

    /// RFC 5322, section 3.6.4, without the obsolete forms: `"<" dot-atom-text "@" dot-atom-text ">"`.
    fn is_message_id(text: &str) -> bool {
        let is_atom = |atom: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
            !atom.is_empty() && atom.chars().all(allowed)
        };
        let inside = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
        let sides = inside.and_then(|inside| inside.split_once('@'));
        sides.is_some_and(|(left, right)| left.split('.').all(is_atom) && right.split('.').all(is_atom))
    }

    #[test]
    fn every_header_of_every_kind_of_mail_is_valid() {
        let from = sender("Söhne & Co <svc@bücher.example>").unwrap();
        for mail in mails() {
            let stamp = Stamp { mail_id: OutboxId::generate(), date: DateTime::UNIX_EPOCH };
            let headers = headers(&message(&from, &mail, stamp).unwrap());
            let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(
                names,
                [
                    "From",
                    "To",
                    "Subject",
                    "Message-ID",
                    "Date",
                    "Auto-Submitted",
                    "X-Auto-Response-Suppress",
                    "MIME-Version",
                    "Content-Type"
                ]
            );
            let value = |name: &str| headers.iter().find(|header| header.0 == name).unwrap().1.as_str();
            assert!(is_message_id(value("Message-ID")), "{headers:?}");
            assert!(value("From").ends_with(" <svc@xn--bcher-kva.example>"), "{headers:?}");
            assert_eq!(value("To"), "ada@xn--bcher-kva.example");
            assert_eq!(value("Date"), "Thu, 01 Jan 1970 00:00:00 +0000");
            // An encoded word (RFC 2047) is allowed in the subject and in the name of the sender only.
            assert!(value("From").starts_with("=?utf-8?b?"), "{headers:?}");
            let encoded = headers.iter().filter(|(_, value)| value.contains("=?")).map(|(name, _)| name);
            assert!(encoded.clone().all(|name| name == "From" || name == "Subject"), "{headers:?}");
        }
    }

    /// Decodes the encoded words of a header field (RFC 2047) and removes the characters of no width.
    fn shown(field: &str) -> String {
        let (mut shown, mut rest) = (String::new(), field);
        while let Some((before, word)) = rest.split_once("=?") {
            let parts: Vec<_> = word.splitn(4, '?').collect();
            let &[_, encoding, content, after] = parts.as_slice() else { panic!("{field}") };
            // White space between encoded words is not shown.
            if !before.trim().is_empty() {
                shown.push_str(before);
            }
            match encoding {
                "b" => {
                    let bytes = data_encoding::BASE64.decode(content.as_bytes()).unwrap();
                    shown.push_str(&String::from_utf8(bytes).unwrap());
                }
                _ => shown.push_str(content),
            }
            rest = after.strip_prefix('=').unwrap();
        }
        shown.push_str(rest);
        shown.replace('\u{200b}', "")
    }

    #[test]
    fn mail_programs_show_names_and_addresses_in_headers_unchanged() {
        let token = RawToken::generate(TokenKind::Invite, &SystemEntropy);
        let names =
            ["=?utf-8?b?QUJD?= Inc", "Söhne =?utf-8?q?Bank?= & Co", "==?utf-8?q?a?=?utf-8?q?b?=", "a =?"];
        for (tenant_name, product) in names.into_iter().zip(["svc", "=?utf-8?q?Bank?=", "Söhne =?x", "A B"])
        {
            for inviter in ["=?utf-8?q?Paypal?=@evil.example", "ada@acme.example"] {
                let from = Mailbox::new(Some(product.to_owned()), "svc@mail.example".parse().unwrap());
                let tenant = tenant(tenant_name.to_owned());
                let values = Values::new("bob@acme.example", &tenant, DateTime::UNIX_EPOCH);
                let values = Values { inviter: Some(inviter), ..values };
                let letter = letterhead(&[("SVC_PRODUCT_NAME", product)]).invite(&values, &token);
                let subject = letter.subject().replace('\u{200b}', "");
                assert!(subject.contains(inviter) && subject.contains(tenant_name), "{subject}");
                let mail = Mail { to: "bob@acme.example".to_owned(), letter, token: None };
                let stamp = Stamp { mail_id: OutboxId::generate(), date: DateTime::UNIX_EPOCH };
                let headers = headers(&message(&from, &mail, stamp).unwrap());
                let value = |name: &str| shown(&headers.iter().find(|header| header.0 == name).unwrap().1);
                assert_eq!(value("Subject"), subject);
                assert_eq!(value("From").replace('"', ""), format!("{product} <svc@mail.example>"));
            }
        }
    }

    #[test]
    fn a_line_with_an_encoded_word_has_at_most_76_characters() {
        for length in 1..=60 {
            for domain in ["mail.example", "accounts.a-long-name-of-a-department.bücher.example"] {
                let product = "ö".repeat(length);
                let from = sender(&format!("{product} <accounts@{domain}>")).unwrap();
                let head = letterhead(&[
                    ("SVC_PRODUCT_NAME", &product),
                    ("SVC_SUPPORT_ADDRESS", "help@bücher.example"),
                ]);
                let values = tenant("ü".repeat(length));
                let letter =
                    head.password_changed(&Values::new("ada@acme.example", &values, DateTime::UNIX_EPOCH));
                let mail = Mail { to: "ada@acme.example".to_owned(), letter, token: None };
                let stamp = Stamp { mail_id: OutboxId::generate(), date: DateTime::UNIX_EPOCH };
                let message = message(&from, &mail, stamp).unwrap();
                let text = String::from_utf8(message.formatted()).unwrap();
                let (head, _) = text.split_once("\r\n\r\n").unwrap();
                assert!(head.lines().all(|line| !line.contains("=?") || line.len() <= 76), "{head}");
                assert_eq!(
                    message.headers().get::<From>().unwrap(),
                    From::from(Mailboxes::from(from)),
                    "{head}"
                );
            }
        }
    }

    #[test]
    fn every_name_in_a_text_has_a_value() {
        for mail in mails() {
            let (text, html) = (mail.letter.text().unwrap(), mail.letter.html().unwrap());
            let html = html.split_once("<body").unwrap().1;
            assert!(!text.contains('{') && !html.contains('{'), "{text}");
        }
    }

    #[test]
    fn without_commands_mails_have_links_only() {
        for (setting, is_shown) in [("on", true), ("off", false)] {
            let mails = mails_with(&[("SVC_MAIL_COMMANDS", setting)]);
            let parts =
                mails.iter().flat_map(|mail| [mail.letter.text().unwrap(), mail.letter.html().unwrap()]);
            let parts: Vec<_> = parts.collect();
            // Per language: three mails with a token, and the notice of an API key.
            let shown = parts.iter().filter(|part| part.contains("--base-url")).count();
            assert_eq!(shown, if is_shown { 2 * 2 * 4 } else { 0 });
            assert_eq!(parts.iter().any(|part| part.contains("Token:")), is_shown);
            assert!(parts.iter().all(|part| part.contains("https://svc.example/api/v1/pages/")));
        }
    }

    #[test]
    fn mails_show_the_configured_branding() {
        let head = letterhead(&[
            ("SVC_PRODUCT_NAME", "Acme <Cloud>"),
            ("SVC_ACCENT_COLOR", "#7a1f5c"),
            ("SVC_SUPPORT_ADDRESS", "https://help.acme.example"),
        ]);
        let tenant = tenant("Acme {account}".to_owned());
        let letter = head.password_changed(&Values::new("ada@acme.example", &tenant, DateTime::UNIX_EPOCH));
        assert_eq!(letter.subject(), "Acme <Cloud>: Your password was changed");
        let (text, html) = (letter.text().unwrap(), letter.html().unwrap());
        assert!(text.contains("https://svc.example/api/v1/pages/request-reset#tenant=acme\n"), "{text}");
        let german = letterhead(&[("SVC_LANGUAGE", "de")]);
        let values = Values::new("ada@acme.example", &tenant, DateTime::UNIX_EPOCH);
        assert_eq!(german.password_changed(&values).subject(), "svc: Ihr Passwort wurde geändert");
        assert!(text.contains("in Acme {account} (organization ID acme)"), "a value was replaced: {text}");
        assert!(text.ends_with("Need help? https://help.acme.example/\n"), "{text}");
        for part in [
            "Acme &#60;Cloud&#62;",
            "background-color: #7a1f5c;",
            "<a class=\"link\" href=\"https://help.acme.example/\" style=\"color: #7a1f5c;\">help.acme.example</a>",
        ] {
            assert!(html.contains(part), "{part} is missing: {html}");
        }
    }

    #[test]
    fn a_name_in_a_mail_is_no_link() {
        let head = letterhead(&[]);
        let tenant = tenant("www.evil.example/pay".to_owned());
        let letter = head.password_changed(&Values::new("ada@acme.example", &tenant, DateTime::UNIX_EPOCH));
        for content in [letter.text().unwrap(), letter.html().unwrap()] {
            assert!(!content.contains("evil.example") && !content.contains("www.evil"), "{content}");
            // The name is the same for a person.
            assert!(content.replace('\u{200b}', "").contains("www.evil.example/pay"), "{content}");
            assert!(content.contains("ada@acme.example"), "{content}");
        }
    }

    #[test]
    fn times_are_in_the_language_of_the_mail() {
        let tenant = tenant("Acme".to_owned());
        for (language, time) in
            [("en", "on 1 January 1970, 00:00 UTC."), ("de", "am 01.01.1970 um 00:00 Uhr (UTC) geändert.")]
        {
            let values = Values::new("ada@acme.example", &tenant, DateTime::UNIX_EPOCH);
            let text = letterhead(&[("SVC_LANGUAGE", language)]).password_changed(&values).text().unwrap();
            assert!(text.contains(time), "{text}");
        }
    }

    #[test]
    fn a_mail_without_styles_and_in_outlook_has_a_button_and_the_address() {
        for mail in mails() {
            let html = mail.letter.html().unwrap();
            let without_styles =
                html.split_once("<style>").unwrap().0.to_owned() + html.split_once("</style>").unwrap().1;
            assert!(!without_styles.contains("style>"), "{html}");
            // The cell has the color and the space around the text.
            let cell =
                without_styles.split("<td class=\"button\"").nth(1).unwrap().split("</td>").next().unwrap();
            for part in ["background-color: #1d4ed8", "padding: 12px 20px", "color: #ffffff"] {
                assert!(cell.contains(part), "{part}: {cell}");
            }
            let link = cell.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
            assert!(html.replace("<wbr>", "").contains(&format!(">{link}</a>")), "{html}");
            assert!(
                mail.letter.text().unwrap().lines().any(|line| line == link.replace("&#38;", "&")),
                "{link}"
            );
        }
    }

    #[test]
    fn a_command_in_a_mail_does_not_contain_the_token() {
        for mail in mails().into_iter().filter(|mail| mail.token.is_some()) {
            let (text, html) = (mail.letter.text().unwrap(), mail.letter.html().unwrap());
            let is_command = |line: &&str| line.contains("svc users ") || line.contains("svc auth ");
            let commands: Vec<_> = text.lines().chain(html.lines()).filter(is_command).collect();
            assert_eq!(commands.len(), 2, "{text}{html}");
            assert!(commands.iter().all(|line| !line.contains("svc_iv_")), "{commands:?}");
            assert!(text.lines().any(|line| line.starts_with("Token: svc_iv_")), "{text}");
        }
    }
}
