//! The content of a mail, rendered as plain text and as HTML (responsive, light and dark).

use askama::Template;
use url::Url;

/// The content of a mail.
pub(crate) struct Letter {
    /// The subject and heading.
    pub(crate) subject: String,
    /// Paragraphs before the action.
    pub(crate) lead: Vec<String>,
    /// What the recipient can do.
    pub(crate) action: Option<Action>,
    /// Paragraphs after the action.
    pub(crate) closing: Vec<String>,
}

/// A link, and the equivalent command.
pub(crate) struct Action {
    /// Completes the sentence "Open this link …".
    pub(crate) purpose: String,
    /// The text of the button.
    pub(crate) label: String,
    /// The link. The token is in the fragment, which clients do not send to a server.
    pub(crate) link: String,
    /// The equivalent `svc` command.
    pub(crate) command: String,
}

#[derive(Template)]
#[template(path = "letter.txt")]
struct Text<'a>(&'a Letter);

#[derive(Template)]
#[template(path = "letter.html")]
struct Html<'a>(&'a Letter);

impl Letter {
    /// Renders plain text.
    pub(crate) fn text(&self) -> Result<String, askama::Error> {
        Text(self).render()
    }

    /// Renders HTML.
    pub(crate) fn html(&self) -> Result<String, askama::Error> {
        Html(self).render()
    }
}

/// Returns the public URL without a trailing slash, the prefix of links.
pub(crate) fn origin(public_url: &Url) -> &str {
    public_url.as_str().trim_end_matches('/')
}

/// Replaces line breaks and control characters by spaces, so that user input cannot add lines to a mail.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}
