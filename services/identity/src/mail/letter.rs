//! The content of a mail, rendered as plain text and as HTML (responsive, light and dark). The texts are in the files of
//! [`crate::texts`]: a paragraph ends with an empty line, and `{tenant}` is a value of [`Values`].

use std::sync::Arc;

use askama::Template;
use chrono::{DateTime, Utc};
use contract::identity::Tenant;
use contract::internal::ApiKeyNotice;
use contract::{API_PREFIX, names};
use hashing::RawToken;
use lettre::Address;
use url::Url;

use crate::branding::{Accent, Branding, Support};
use crate::message::{AdminChange, FactorChange};
use crate::texts::{Texts, filled};

/// What every mail of the installation has in common: language, branding and the address of the pages.
pub(crate) struct Letterhead {
    texts: Texts,
    product: String,
    accent: Accent,
    support: Option<Support>,
    /// Whether mails show commands.
    commands: bool,
    /// The public origin, without a trailing slash.
    origin: String,
}

/// The content of a mail.
pub(crate) struct Letter {
    head: Arc<Letterhead>,
    /// The heading, and the subject without the name of the product.
    title: String,
    lead: Vec<String>,
    action: Action,
    closing: Vec<String>,
    command: Option<Command>,
}

/// What the recipient can do.
struct Action {
    /// Introduces the link.
    open: String,
    /// The text of the button.
    label: String,
    link: String,
    /// The label and the address of a second page.
    other: Option<(String, String)>,
}

impl Action {
    /// The link in parts, between which a client can break the line.
    fn parts_of_link(&self) -> Vec<String> {
        self.link.chars().collect::<Vec<_>>().chunks(4).map(String::from_iter).collect()
    }
}

/// What the recipient can do on the command line.
struct Command {
    /// Introduces the command.
    open: String,
    /// The `svc` command, without a token: other users of a machine can read the arguments of its processes.
    line: String,
    token: Option<String>,
}

/// The keys of the texts of one kind of mail.
struct Keys<'a> {
    title: &'a str,
    lead: &'a str,
    open: &'a str,
    label: &'a str,
    closing: &'a str,
}

const INVITE: Keys<'static> = Keys {
    title: "mail.invite.title",
    lead: "mail.invite.lead",
    open: "mail.invite.open",
    label: "mail.invite.label",
    closing: "mail.invite.closing",
};
/// If the inviting person is known.
const INVITE_BY: Keys<'static> =
    Keys { title: "mail.invite.title_by", lead: "mail.invite.lead_by", ..INVITE };
const RESET: Keys<'static> = Keys {
    title: "mail.reset.title",
    lead: "mail.reset.lead",
    open: "mail.reset.open",
    label: "mail.reset.label",
    closing: "mail.reset.closing",
};
const PASSWORD_CHANGED: Keys<'static> = Keys {
    title: "mail.changed.title",
    lead: "mail.changed.lead",
    open: "mail.changed.open",
    label: "mail.changed.label",
    closing: "mail.changed.closing",
};

/// A new way to log in: it can be the only one after the password was changed.
const FACTOR_ADDED: Keys<'static> = Keys { closing: "mail.factor_added.closing", ..PASSWORD_CHANGED };

const ADMIN_CHANGED: Keys<'static> = Keys {
    title: "mail.admin_invited.title",
    lead: "mail.admin_invited.lead",
    open: "mail.admin_changed.open",
    label: "mail.admin_changed.label",
    closing: "mail.admin_changed.closing",
};

const API_KEY_CREATED: Keys<'static> = Keys {
    title: "mail.api_key.title",
    lead: "mail.api_key.lead",
    closing: "mail.api_key.closing",
    ..ADMIN_CHANGED
};

/// The text and the name of a second page of a mail.
const CHECK_SESSIONS: (&str, &str) = ("mail.admin_changed.other", "sessions");
const CHECK_FACTORS: (&str, &str) = ("mail.factor_added.other", "factors");

/// The values that the texts of a mail can name.
pub(crate) struct Values<'a> {
    /// `{account}`: the address that the mail is for, as typed.
    pub(crate) account: &'a str,
    /// `{tenant}` and `{tenant_id}`.
    pub(crate) tenant: &'a Tenant,
    /// `{time}`: the end of a term, or the time of a change.
    pub(crate) time: DateTime<Utc>,
    /// `{inviter}`: the address of the inviting person.
    pub(crate) inviter: Option<&'a str>,
    /// `{changed_by}`: the address of the person who made a change; `None` for the platform administrator.
    pub(crate) changed_by: Option<&'a str>,
    /// `{key_name}`, `{scopes}` and `{expires}`: a new API key.
    pub(crate) api_key: Option<&'a ApiKeyNotice>,
}

impl<'a> Values<'a> {
    /// The values of a mail to an account of a tenant.
    pub(crate) fn new(account: &'a str, tenant: &'a Tenant, time: DateTime<Utc>) -> Self {
        let (inviter, changed_by, api_key) = (None, None, None);
        Self { account, tenant, time, inviter, changed_by, api_key }
    }

    /// Replaces the names in a text by their values, each in one line.
    fn fill(&self, text: &str, time_format: &str) -> String {
        let tenant_id = self.tenant.tenant_id.as_str();
        let minute = |time: DateTime<Utc>| time.format(time_format).to_string();
        let time = minute(self.time);
        let (account, tenant) = (one_line(self.account), name(&self.tenant.display_name));
        let inviter = self.inviter.map(one_line).unwrap_or_default();
        let changed_by = self.changed_by.map(one_line).unwrap_or_default();
        let (key_name, scopes, expires) = self.api_key.map_or_else(Default::default, |key| {
            let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.as_str()).collect();
            (name(&key.name), scopes.join(", "), minute(key.expires_at))
        });
        let values = [
            ("account", &*account),
            ("tenant", &*tenant),
            ("tenant_id", tenant_id),
            ("time", &*time),
            ("inviter", &*inviter),
            ("changed_by", &*changed_by),
            ("key_name", &*key_name),
            ("scopes", &*scopes),
            ("expires", &*expires),
        ];
        filled(text, &values)
    }
}

impl Letterhead {
    /// The letterhead of an installation.
    ///
    /// # Errors
    /// The file of texts is damaged.
    pub(crate) fn new(branding: &Branding, public_url: &Url) -> Result<Self, serde_json::Error> {
        let Branding { product, accent, support, language, mail_commands: commands, .. } = branding.clone();
        let texts = Texts::load(language, &[("product", &product)])?;
        let origin = public_url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { texts, product, accent, support, commands, origin })
    }

    /// The mail of an invite. `values.time` is the end of its term.
    pub(crate) fn invite(self: &Arc<Self>, values: &Values<'_>, token: &RawToken) -> Letter {
        let keys = if values.inviter.is_some() { INVITE_BY } else { INVITE };
        self.with_token(&keys, values, ("accept-invite", "users accept-invite"), token)
    }

    /// The mail of a password reset. `values.time` is the end of its term.
    pub(crate) fn reset(self: &Arc<Self>, values: &Values<'_>, token: &RawToken) -> Letter {
        self.with_token(&RESET, values, ("reset-password", "auth password confirm-reset"), token)
    }

    /// The notice of a password that was changed at `values.time`. It contains no token.
    pub(crate) fn password_changed(self: &Arc<Self>, values: &Values<'_>) -> Letter {
        self.letter(&PASSWORD_CHANGED, values, &reset_page(values))
    }

    /// The notice of a change of the second factors of `values.account` at `values.time`.
    pub(crate) fn factor_changed(self: &Arc<Self>, change: FactorChange, values: &Values<'_>) -> Letter {
        let key = |part| format!("mail.factor.{}.{part}", change.as_str());
        let (title, lead) = (key("title"), key("lead"));
        let is_new = matches!(
            change,
            FactorChange::TotpAdded | FactorChange::PasskeyAdded | FactorChange::RecoveryCodesReplaced
        );
        let (keys, other) =
            if is_new { (FACTOR_ADDED, CHECK_FACTORS) } else { (PASSWORD_CHANGED, CHECK_SESSIONS) };
        self.with_page(&Keys { title: &title, lead: &lead, ..keys }, values, other)
    }

    /// The notice that `values.changed_by` changed the rights of `values.account` at `values.time`, to an administrator or, with
    /// `is_affected`, to the account.
    pub(crate) fn admin_notice(
        self: &Arc<Self>,
        change: AdminChange,
        is_affected: bool,
        values: &Values<'_>,
    ) -> Letter {
        let (title, lead) = match (change, is_affected) {
            (AdminChange::Invited, _) => (ADMIN_CHANGED.title, ADMIN_CHANGED.lead),
            (AdminChange::FactorsReset, _) => {
                ("mail.admin_factors_reset.title", "mail.admin_factors_reset.lead")
            }
            (AdminChange::Promoted, true) => ("mail.you_promoted.title", "mail.you_promoted.lead"),
            (AdminChange::Demoted, true) => ("mail.you_demoted.title", "mail.you_demoted.lead"),
            (AdminChange::Promoted, false) => ("mail.admin_promoted.title", "mail.admin_promoted.lead"),
            (AdminChange::Demoted, false) => ("mail.admin_demoted.title", "mail.admin_demoted.lead"),
        };
        let closing = if is_affected { "mail.you.closing" } else { ADMIN_CHANGED.closing };
        let platform = self.texts.get("mail.admin_changed.platform");
        let values = Values { changed_by: values.changed_by.or(Some(platform)), ..*values };
        self.with_page(&Keys { title, lead, closing, ..ADMIN_CHANGED }, &values, CHECK_SESSIONS)
    }

    /// The notice to an administrator that `values.changed_by` created an API key at `values.time`.
    pub(crate) fn api_key_created(self: &Arc<Self>, notice: &ApiKeyNotice, values: &Values<'_>) -> Letter {
        let tenant_id = &values.tenant.tenant_id;
        let line =
            format!("svc api-keys revoke {} --tenant {tenant_id} --base-url {}", notice.key_id, self.origin);
        let open = self.texts.get("mail.api_key.command").to_owned();
        let values = Values { api_key: Some(notice), ..*values };
        let letter = self.with_page(&API_KEY_CREATED, &values, CHECK_SESSIONS);
        Letter { command: self.commands.then_some(Command { open, line, token: None }), ..letter }
    }

    /// A mail to set a new password, and then to open another page.
    fn with_page(
        self: &Arc<Self>,
        keys: &Keys<'_>,
        values: &Values<'_>,
        (label, page): (&str, &str),
    ) -> Letter {
        let mut letter = self.letter(keys, values, &reset_page(values));
        let other = self.page(&format!("{page}#tenant={}", values.tenant.tenant_id));
        letter.action.other = Some((self.texts.get(label).to_owned(), other));
        letter
    }

    /// A mail with a token for a page, or for a command. The token is in the fragment of the link, which browsers do not send.
    fn with_token(
        self: &Arc<Self>,
        keys: &Keys<'_>,
        values: &Values<'_>,
        (page, command): (&str, &str),
        token: &RawToken,
    ) -> Letter {
        let token = token.expose().to_owned();
        let letter = self.letter(keys, values, &format!("{page}#token={token}"));
        let (open, line) =
            (self.texts.get("mail.command").to_owned(), format!("svc {command} --base-url {}", self.origin));
        Letter { command: self.commands.then_some(Command { open, line, token: Some(token) }), ..letter }
    }

    /// Returns the address of a page.
    fn page(&self, page: &str) -> String {
        format!("{}{API_PREFIX}/pages/{page}", self.origin)
    }

    fn letter(self: &Arc<Self>, keys: &Keys<'_>, values: &Values<'_>, page: &str) -> Letter {
        let time_format = self.texts.get("mail.time");
        let fill = |key| values.fill(self.texts.get(key), time_format);
        // Split before the values are filled in.
        let paragraphs = |key| -> Vec<String> {
            self.texts.get(key).split("\n\n").map(|text| values.fill(text, time_format)).collect()
        };
        let (open, label, link) = (fill(keys.open), fill(keys.label), self.page(page));
        Letter {
            head: Arc::clone(self),
            title: fill(keys.title),
            lead: paragraphs(keys.lead),
            action: Action { open, label, link, other: None },
            closing: paragraphs(keys.closing),
            command: None,
        }
    }

    fn language(&self) -> &'static str {
        self.texts.language.tag()
    }

    fn text<'a>(&'a self, key: &'a str) -> &'a str {
        self.texts.get(key)
    }
}

#[derive(Template)]
#[template(path = "letter.txt")]
struct Text<'a> {
    letter: &'a Letter,
    head: &'a Letterhead,
}

#[derive(Template)]
#[template(path = "letter.html")]
struct Html<'a> {
    letter: &'a Letter,
    head: &'a Letterhead,
}

impl Letter {
    /// Returns the subject.
    pub(crate) fn subject(&self) -> String {
        format!("{}: {}", self.head.product, self.title)
    }

    /// Returns where answers to the mail go.
    pub(crate) fn reply_to(&self) -> Option<&Address> {
        match &self.head.support {
            Some(Support::Mail(address)) => Some(address),
            Some(Support::Web(_)) | None => None,
        }
    }

    /// Renders plain text.
    pub(crate) fn text(&self) -> Result<String, askama::Error> {
        Text { letter: self, head: &self.head }.render()
    }

    /// Renders HTML.
    pub(crate) fn html(&self) -> Result<String, askama::Error> {
        Html { letter: self, head: &self.head }.render()
    }
}

/// The page that requests a reset, with the tenant filled in.
fn reset_page(values: &Values<'_>) -> String {
    format!("request-reset#tenant={}", values.tenant.tenant_id)
}

/// Replaces line breaks and similar characters by spaces, so that user input cannot add lines to a mail.
fn one_line(text: &str) -> String {
    text.replace(names::is_unsafe, " ")
}

/// A name that a person chose. Mail programs make links of names such as `evil.example`, except if a character of no width is in
/// the middle.
fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let text = one_line(text);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        shown.push(c);
        let is_inside = rest.peek().is_some_and(|next| next.is_alphanumeric() || *next == '/');
        if matches!(c, '.' | ':' | '@') && is_inside {
            shown.push('\u{200b}');
        }
    }
    shown
}
