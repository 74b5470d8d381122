//! What a mail says, once: as text and as HTML that reads well on a phone, in light and in dark.

use askama::Template;
use url::Url;

/// The words of a mail.
pub(crate) struct Letter {
    /// The subject, also the heading.
    pub(crate) subject: String,
    /// Paragraphs before what is to be done.
    pub(crate) lead: Vec<String>,
    /// What the person can do.
    pub(crate) action: Option<Action>,
    /// Paragraphs after it.
    pub(crate) closing: Vec<String>,
}

/// A link, and the same as a command.
pub(crate) struct Action {
    /// What the link is for, as in "Open this link to accept".
    pub(crate) purpose: String,
    /// What the button says.
    pub(crate) label: String,
    /// The link; the token stands in its fragment, which no server ever sees.
    pub(crate) link: String,
    /// What does the same on the command line.
    pub(crate) command: String,
}

#[derive(Template)]
#[template(path = "letter.txt")]
struct Text<'a>(&'a Letter);

#[derive(Template)]
#[template(path = "letter.html")]
struct Html<'a>(&'a Letter);

impl Letter {
    /// As text.
    pub(crate) fn text(&self) -> Result<String, askama::Error> {
        Text(self).render()
    }

    /// As HTML.
    pub(crate) fn html(&self) -> Result<String, askama::Error> {
        Html(self).render()
    }
}

/// The origin without its last slash, as links and commands begin with it.
pub(crate) fn origin(public_url: &Url) -> &str {
    public_url.as_str().trim_end_matches('/')
}

/// Somebody's words on one line: what they typed must not become a line of ours.
pub(crate) fn one_line(words: &str) -> String {
    words
        .chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}
