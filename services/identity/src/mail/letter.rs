//! The content of a mail, rendered as plain text and as HTML (responsive, light and dark).

use askama::Template;
use chrono::{DateTime, Utc};
use contract::API_PREFIX;
use hashing::RawToken;
use tenancy::TenantId;
use url::Url;

/// The content of a mail.
pub(crate) struct Letter {
    /// The subject and heading.
    pub(crate) subject: String,
    /// Paragraphs before the action.
    lead: Vec<String>,
    /// What the recipient can do.
    action: Option<Action>,
    /// Paragraphs after the action.
    closing: Vec<String>,
}

/// A link, and the equivalent command.
struct Action {
    /// Completes the sentence "Open this link …".
    purpose: String,
    /// The text of the button.
    label: String,
    /// The link. The token is in the fragment, which clients do not send to a server.
    link: String,
    /// The equivalent `svc` command.
    command: String,
}

#[derive(Template)]
#[template(path = "letter.txt")]
struct Text<'a>(&'a Letter);

#[derive(Template)]
#[template(path = "letter.html")]
struct Html<'a>(&'a Letter);

impl Letter {
    /// The mail of an invite.
    pub(crate) fn invite(
        public_url: &Url,
        tenant_id: &TenantId,
        tenant_name: &str,
        token: &RawToken,
        expires_at: DateTime<Utc>,
    ) -> Self {
        let (origin, token, name) = (origin(public_url), token.expose(), one_line(tenant_name));
        Self {
            subject: format!("You have been invited to {name}"),
            lead: vec![format!("You have been invited to {name} (tenant {tenant_id}).")],
            action: Some(Action {
                purpose: "to accept the invite and choose a password".to_owned(),
                label: "Accept the invite".to_owned(),
                link: format!("{origin}{API_PREFIX}/pages/accept-invite#token={token}"),
                command: format!("svc users accept-invite --base-url {origin} {token}"),
            }),
            closing: vec![
                format!("The invite is valid once, until {}.", minute(expires_at)),
                "If you did not expect this invite, ignore this mail.".to_owned(),
            ],
        }
    }

    /// The mail of a password reset.
    pub(crate) fn reset(
        public_url: &Url,
        tenant_id: &TenantId,
        token: &RawToken,
        expires_at: DateTime<Utc>,
    ) -> Self {
        let (origin, token) = (origin(public_url), token.expose());
        Self {
            subject: "Reset your password".to_owned(),
            lead: vec![format!(
                "A password reset was requested for this e-mail address in tenant {tenant_id}."
            )],
            action: Some(Action {
                purpose: "to choose a new password".to_owned(),
                label: "Choose a new password".to_owned(),
                link: format!("{origin}{API_PREFIX}/pages/reset-password#token={token}"),
                command: format!("svc auth password confirm-reset --base-url {origin} {token}"),
            }),
            closing: vec![
                format!("The link is valid once, until {}.", minute(expires_at)),
                "If you did not request this, ignore this mail. Your password has not changed.".to_owned(),
            ],
        }
    }

    /// The notice of a changed password. It contains no token.
    pub(crate) fn password_changed(tenant_id: &TenantId, changed_at: DateTime<Utc>) -> Self {
        Self {
            subject: "Your password was changed".to_owned(),
            lead: vec![
                format!(
                    "The password of this e-mail address in tenant {tenant_id} was changed at {}.",
                    minute(changed_at)
                ),
                "Sessions that were created with the previous password are revoked.".to_owned(),
            ],
            action: None,
            closing: vec![
                "If you did not change it, request a password reset now and inform an administrator."
                    .to_owned(),
            ],
        }
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

fn minute(time: DateTime<Utc>) -> impl std::fmt::Display {
    time.format("%Y-%m-%d %H:%M UTC")
}

/// Returns the public URL without a trailing slash, the prefix of links.
fn origin(public_url: &Url) -> &str {
    public_url.as_str().trim_end_matches('/')
}

/// Replaces line breaks and control characters by spaces, so that user input cannot add lines to a mail.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}
