//! `svc auth sessions`: sessions of a user.

use clap::Args;
use contract::session::{AuthMethod, Session, SessionMethod, Whoami};
use contract::{Secret, routes};
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{SessionId, UserId};

use crate::framework::address::UserRef;
use crate::framework::api::{Api, Paging};
use crate::framework::catalog::{Errors, Examples, Names, Routes, SchemaOf, text_input};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::credentials::Credentials;
use crate::framework::error::{ErrorKind, Exit, Result};
use crate::framework::input::stdin_secret;
use crate::framework::output::{
    Cell, CommandOutput, ItemList, Row, Table, address, optional, text, time, word,
};

const TOKEN_PREFIX: &str = "svc_st_";

group!(
    /// List and revoke sessions.
    Sessions {
        List(List),
        Revoke(Revoke),
    }
);

/// Result of revoking one or all sessions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RevokedSession {
    /// Always true.
    pub(super) revoked: bool,
    /// Whether a stored session was deleted from the keyring or the file.
    pub(super) forgotten: bool,
}

impl CommandOutput for RevokedSession {
    fn table(&self) -> Table {
        Table::message(if self.forgotten {
            "Revoked and removed from the stored credentials."
        } else {
            "Revoked."
        })
    }
}

/// List active sessions.
///
/// An asterisk marks the current session. Each session has an absolute lifetime, and expires earlier if it reaches its idle
/// timeout. Listing sessions of another user requires an administrator.
#[derive(Args)]
pub(crate) struct List {
    /// User, by e-mail address or id [default: yourself].
    #[arg(long, value_name = "USER")]
    user_id: Option<UserRef>,
    #[command(flatten)]
    paging: Paging,
}

/// The method of a login, then the second factor or the passkey in place of a password: `password + app`.
pub(super) fn login_method(method: SessionMethod, amr: &[AuthMethod]) -> String {
    let is_passkey = amr.iter().any(|used| matches!(used, AuthMethod::Hwk | AuthMethod::Swk));
    let is_alone = is_passkey && method == SessionMethod::Password && !amr.contains(&AuthMethod::Pwd);
    let second = match is_passkey {
        _ if amr.contains(&AuthMethod::Otp) => Some("app"),
        true => Some("passkey"),
        false => amr.contains(&AuthMethod::Mfa).then_some("recovery code"),
    };
    let first = (!is_alone).then(|| method.to_string());
    first.into_iter().chain(second.map(str::to_owned)).collect::<Vec<_>>().join(" + ")
}

/// JSON output has all fields.
impl Row for Session {
    const EMPTY: &'static str = "No active sessions.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("", text(if self.current == Some(true) { "*" } else { "" })),
            ("ID", word(self.id)),
            ("CLIENT", optional(self.client_name.as_ref().or(self.user_agent.as_ref()).map(text))),
            ("LAST USED", time(&self.last_seen_at)),
            ("ADDRESS", optional(self.ip.as_ref().map(address))),
            ("EXPIRES", time(&self.expires_at.min(self.idle_expires_at))),
            ("METHOD", text(login_method(self.method, &self.amr))),
        ]
    }
}

impl Command for List {
    type Output = ItemList<Session>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_SESSIONS, &routes::LIST_USERS]);
    const ERRORS: Errors = &[ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[
        ("List your own sessions", "svc auth sessions list"),
        (
            "List sessions of another user as an administrator",
            "svc auth sessions list --user-id bob@acme.example",
        ),
    ];
    const AGENT_NOTES: &'static str = "Exit status 3 means that the user does not exist or belongs to \
        another tenant. The ids are not credentials; pass them to `auth sessions revoke`.";
    const SEE_ALSO: Names = &["auth sessions revoke", "auth whoami"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let user = match self.user_id {
            Some(user) => user.id(&api).await?,
            None => api.owner().await?.user,
        };
        api.for_user(user).print_list(routes::LIST_SESSIONS.path, &[], self.paging).await
    }
}

/// Revoke a session, or all sessions of a user.
///
/// A raw session token can be revoked without a login. The id of a listed session requires a login as its owner or as an
/// administrator. A stored session is also deleted from the keyring or the file if its token is passed, or if the command ends the
/// one that it used. With --all, asks for confirmation.
#[derive(Args)]
pub(crate) struct Revoke {
    /// Id of a session, as `svc auth sessions list` prints it, or a raw session token (`svc_st_…`); `-` reads one of them from
    /// standard input. Without it, --all is required.
    #[arg(required_unless_present = "all")]
    session_id: Option<String>,
    /// Revoke all sessions of the user, including the current one.
    #[arg(long, conflicts_with = "session_id")]
    all: bool,
    /// With --all: keep the session that runs this command.
    #[arg(long, requires = "all")]
    keep_current: bool,
    /// With --all: owner of the sessions, by e-mail address or id [default: yourself].
    #[arg(long, value_name = "USER", requires = "all")]
    user_id: Option<UserRef>,
}

/// A session by its token or by its id.
enum SessionRef {
    Token(Secret),
    Id(SessionId),
}

impl Command for Revoke {
    type Output = RevokedSession;

    const ROUTES: Routes = Routes::Only(&[
        &routes::REVOKE_SESSION,
        &routes::LOG_OUT,
        &routes::REVOKE_SESSIONS,
        &routes::LIST_USERS,
    ]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Revoke a listed session", "svc auth sessions revoke 01890a5d-ac96-774b-bcce-b302099a8057"),
        ("Read the session token from standard input", "svc auth sessions revoke - < token.txt"),
        ("Revoke all your other sessions", "svc auth sessions revoke --all --keep-current --yes"),
    ];
    const AGENT_NOTES: &'static str = "Pass a raw token through `-`, so that it is not visible in the \
        process list. A token needs no login. --all requires --yes without a terminal. Idempotent. Takes effect everywhere within \
        seconds.";
    const SEE_ALSO: Names = &["auth sessions list", "auth logout"];
    const INPUT_SCHEMA: Option<SchemaOf> =
        Some(|| text_input("For `-`, one line: a session token or an id."));

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let session = match self.session_id.as_deref() {
            None => return self.revoke_all(context).await,
            Some("-") => {
                let typed = stdin_secret("session token or id", context.out()).await?;
                parse_session(typed.expose().trim())?
            }
            Some(argument) => parse_session(argument)?,
        };
        let forgotten = match session {
            SessionRef::Token(token) => {
                context.api()?.call(&routes::LOG_OUT, &[]).session(&token)?.execute().await?;
                Credentials::forget(&token)?
            }
            SessionRef::Id(id) => {
                let api = context.connect(Self::REQUIRES).await?;
                api.call(&routes::REVOKE_SESSION, &[&id]).execute().await?;
                remove_if_revoked(&api).await?
            }
        };
        Ok(RevokedSession { revoked: true, forgotten })
    }
}

impl Revoke {
    /// User of `--user-id`, or the current one, and how a question names the user.
    async fn user(&self, context: &Context, api: &Api) -> Result<(UserId, String)> {
        Ok(match &self.user_id {
            Some(user) => {
                let user = user.resolve(context.prompt(), api).await?;
                (user.id, format!("sessions of {user}"))
            }
            None => (api.owner().await?.user, "your sessions".to_owned()),
        })
    }

    async fn revoke_all(&self, context: &Context) -> Result<RevokedSession> {
        let api = context.connect(Self::REQUIRES).await?;
        let (user, owner) = self.user(context, &api).await?;
        let except = if self.keep_current { " except the current one" } else { "" };
        context.prompt().confirm(&format!("Revoke all {owner}{except}?")).await?;
        let query = if self.keep_current { "?keep_current=true" } else { "" };
        let path = format!("{}{query}", routes::REVOKE_SESSIONS.path);
        api.clone().for_user(user).call_path(Method::DELETE, &path).execute().await?;
        let forgotten = !self.keep_current && remove_if_revoked(&api).await?;
        Ok(RevokedSession { revoked: true, forgotten })
    }
}

/// Distinguishes tokens and ids by the prefix. The error does not repeat the text: it may be a credential.
fn parse_session(text: &str) -> Result<SessionRef> {
    if text.starts_with(TOKEN_PREFIX) {
        return Ok(SessionRef::Token(Secret::new(text)));
    }
    text.parse().map(SessionRef::Id).map_err(|_| {
        ErrorKind::InputInvalid
            .with_message(format!("SESSION_ID must be a session token ({TOKEN_PREFIX}…) or a complete id"))
            .with_remediation("Run `svc auth sessions list` to list the ids.")
    })
}

/// Removes the stored session if it is no longer valid. Only the service knows whether the revoked id was its id.
async fn remove_if_revoked(api: &Api) -> Result<bool> {
    let Some(stored) = api.credential().filter(|credential| credential.source.variable().is_none()) else {
        return Ok(false);
    };
    match api.call(&routes::WHOAMI, &[]).fetch::<Whoami>().await {
        Err(error) if error.exit == Exit::Authentication => Credentials::forget(&stored.secret),
        // The session is active, or its state is unknown.
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_method_of_a_login_names_its_second_factor_or_passkey() {
        use AuthMethod::{Hwk, Mfa, Otp, Pwd, Swk};
        for (method, amr, shown) in [
            (SessionMethod::Password, &[Pwd][..], "password"),
            (SessionMethod::Password, &[Pwd, Otp, Mfa], "password + app"),
            (SessionMethod::Password, &[Pwd, Hwk, Mfa], "password + passkey"),
            (SessionMethod::Password, &[Pwd, Mfa], "password + recovery code"),
            (SessionMethod::Password, &[Swk, Mfa], "passkey"),
            (SessionMethod::Device, &[Pwd, Otp, Mfa], "device + app"),
            (SessionMethod::Password, &[], "password"),
        ] {
            assert_eq!(login_method(method, amr), shown, "{amr:?}");
        }
    }

    #[test]
    fn distinguishes_token_and_id_by_prefix() {
        let token = parse_session("svc_st_abc");
        assert!(matches!(token, Ok(SessionRef::Token(token)) if token.expose() == "svc_st_abc"));
        assert!(matches!(parse_session("01890a5d-ac96-774b-bcce-b302099a8057"), Ok(SessionRef::Id(_))));
    }

    #[test]
    fn rejects_other_credentials_without_repeating_them() {
        let error = parse_session("svc_ak_secret").err().unwrap();
        assert_eq!(error.exit, Exit::InvalidInput);
        assert!(!error.message.contains("svc_ak_secret"));
    }

    proptest! {
        #[test]
        fn text_without_prefix_is_an_id_or_rejected(text in "\\PC{0,40}") {
            match parse_session(&text) {
                Ok(SessionRef::Token(token)) => prop_assert!(token.expose().starts_with(TOKEN_PREFIX)),
                Ok(SessionRef::Id(id)) => prop_assert_eq!(text.parse().ok(), Some(id)),
                Err(_) => prop_assert!(!text.starts_with(TOKEN_PREFIX)),
            }
        }
    }
}
