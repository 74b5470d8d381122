//! The texts of all mails, one constant per language. A translation is a copy of [`ENGLISH`].
//!
//! `{name}` in a text is replaced by a value: [`Values::get`] lists the names.

use chrono::{DateTime, Utc};
use contract::identity::Tenant;
use tenancy::TenantId;

/// The texts of all mails in one language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts {
    /// The language tag (BCP 47).
    pub(crate) language: &'static str,
    /// Introduces the command that is equivalent to the link. The token is not part of the command: other users of a machine
    /// can read the arguments of its processes.
    pub(crate) command: &'static str,
    /// Introduces the token.
    pub(crate) token: &'static str,
    /// The mail of an invite.
    pub(crate) invite: LetterText,
    /// The mail of a password reset.
    pub(crate) reset: LetterText,
    /// The notice of a changed password.
    pub(crate) password_changed: LetterText,
}

/// The texts of one kind of mail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LetterText {
    /// The subject and heading.
    pub(crate) subject: &'static str,
    /// Paragraphs before the link.
    pub(crate) lead: &'static [&'static str],
    /// Introduces the link in plain text, and the label of its button in HTML.
    pub(crate) link: Option<[&'static str; 2]>,
    /// Paragraphs after the link.
    pub(crate) closing: &'static [&'static str],
}

/// The English texts.
pub(crate) const ENGLISH: Texts = Texts {
    language: "en",
    command: "Or run this command and paste the token when it asks for it:",
    token: "Token:",
    invite: LetterText {
        subject: "You have been invited to {tenant}",
        lead: &["You have been invited to {tenant} (tenant {tenant_id})."],
        link: Some(["Open this link to accept the invite and choose a password:", "Accept the invite"]),
        closing: &[
            "The invite is valid once, until {time}.",
            "If you did not expect this invite, ignore this mail.",
        ],
    },
    reset: LetterText {
        subject: "Reset your password",
        lead: &["A password reset was requested for {account} in {tenant} (tenant {tenant_id})."],
        link: Some(["Open this link to choose a new password:", "Choose a new password"]),
        closing: &[
            "The link is valid once, until {time}.",
            "If you did not request this, ignore this mail. Your password has not changed.",
        ],
    },
    password_changed: LetterText {
        subject: "Your password was changed",
        lead: &[
            "The password of {account} in {tenant} (tenant {tenant_id}) was changed at {time}.",
            "Sessions that were created with the previous password are revoked.",
        ],
        link: None,
        closing: &["If you did not change it, request a password reset now and inform an administrator."],
    },
};

/// The values that the texts of a mail can name.
pub(crate) struct Values<'a> {
    /// The address that the mail is for, as typed.
    pub(crate) account: &'a str,
    /// The tenant.
    pub(crate) tenant_id: &'a TenantId,
    /// The display name of the tenant.
    pub(crate) tenant_name: &'a str,
    /// The time that the mail is about: the end of a term, or the time of a change.
    pub(crate) time: DateTime<Utc>,
}

impl<'a> Values<'a> {
    /// The values of a mail to an account of a tenant.
    pub(crate) fn new(account: &'a str, tenant: &'a Tenant, time: DateTime<Utc>) -> Self {
        Self { account, tenant_id: &tenant.tenant_id, tenant_name: &tenant.display_name, time }
    }

    /// Returns a value by its name in the texts, in one line.
    fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "account" => one_line(self.account),
            "tenant" => one_line(self.tenant_name),
            "tenant_id" => self.tenant_id.to_string(),
            "time" => self.time.format("%Y-%m-%d %H:%M UTC").to_string(),
            _ => return None,
        })
    }

    /// Replaces the names in a text by their values. A value that contains a name stays as it is.
    pub(crate) fn fill(&self, text: &str) -> String {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            filled.push_str(before);
            filled.push_str(&self.get(name).unwrap_or_else(|| format!("{{{name}}}")));
            rest = after;
        }
        filled + rest
    }
}

/// Replaces line breaks and control characters by spaces, so that user input cannot add lines to a mail.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_looks_like_a_name_stays_as_it_is() {
        let tenant_id = "acme".parse().unwrap();
        let time = DateTime::UNIX_EPOCH;
        let values =
            Values { account: "ada@acme.example", tenant_id: &tenant_id, tenant_name: "{account}\n{", time };
        assert_eq!(values.fill("{tenant}; {tenant_id}; {other}; {"), "{account} {; acme; {other}; {");
    }
}
