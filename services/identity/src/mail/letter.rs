//! The content of a mail, rendered as plain text and as HTML (responsive, light and dark).

use askama::Template;
use contract::API_PREFIX;
use hashing::RawToken;
use url::Url;

use super::texts::{ENGLISH, LetterText, Texts, Values};

/// The content of a mail.
pub(crate) struct Letter {
    /// The subject and heading.
    pub(crate) subject: String,
    texts: &'static Texts,
    lead: Vec<String>,
    action: Option<Action>,
    closing: Vec<String>,
}

/// What the recipient can do with the token of the mail.
struct Action {
    /// Introduces the link.
    open: &'static str,
    /// The text of the button.
    label: &'static str,
    /// The link. The token is in the fragment, which clients do not send to a server.
    link: String,
    /// The equivalent `svc` command, without the token.
    command: String,
    token: String,
}

/// Where a token is used.
struct Use {
    page: &'static str,
    command: &'static str,
}

const ACCEPT_INVITE: Use = Use { page: "accept-invite", command: "users accept-invite" };
const RESET_PASSWORD: Use = Use { page: "reset-password", command: "auth password confirm-reset" };

#[derive(Template)]
#[template(path = "letter.txt")]
struct Text<'a>(&'a Letter);

#[derive(Template)]
#[template(path = "letter.html")]
struct Html<'a>(&'a Letter);

impl Letter {
    /// The mail of an invite. `values.time` is the end of its term.
    pub(crate) fn invite(public_url: &Url, values: &Values<'_>, token: &RawToken) -> Self {
        Self::with_token(&ENGLISH.invite, values, &ACCEPT_INVITE, public_url, token)
    }

    /// The mail of a password reset. `values.time` is the end of its term.
    pub(crate) fn reset(public_url: &Url, values: &Values<'_>, token: &RawToken) -> Self {
        Self::with_token(&ENGLISH.reset, values, &RESET_PASSWORD, public_url, token)
    }

    /// The notice of a password that was changed at `values.time`. It contains no token.
    pub(crate) fn password_changed(values: &Values<'_>) -> Self {
        Self::new(&ENGLISH.password_changed, values)
    }

    fn new(text: &LetterText, values: &Values<'_>) -> Self {
        let fill = |paragraphs: &[&str]| paragraphs.iter().map(|text| values.fill(text)).collect();
        Self {
            subject: values.fill(text.subject),
            texts: &ENGLISH,
            lead: fill(text.lead),
            action: None,
            closing: fill(text.closing),
        }
    }

    fn with_token(
        text: &LetterText,
        values: &Values<'_>,
        Use { page, command }: &Use,
        public_url: &Url,
        token: &RawToken,
    ) -> Self {
        let (origin, token) = (public_url.as_str().trim_end_matches('/'), token.expose().to_owned());
        let action = text.link.map(|[open, label]| Action {
            open,
            label,
            link: format!("{origin}{API_PREFIX}/pages/{page}#token={token}"),
            command: format!("svc {command} --base-url {origin}"),
            token,
        });
        Self { action, ..Self::new(text, values) }
    }

    /// Renders plain text.
    pub(crate) fn text(&self) -> Result<String, askama::Error> {
        Text(self).render()
    }

    /// Renders HTML.
    pub(crate) fn html(&self) -> Result<String, askama::Error> {
        Html(self).render()
    }
}
