//! `svc auth sessions revoke`

use clap::Args;
use contract::{ProblemKind, Secret};
use reqwest::Method;
use tenancy::SessionId;

use super::Ended;
use crate::api::Api;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::{Caller, Context};
use crate::credentials::CredentialStore;
use crate::error::{Exit, Fault, Result};
use crate::prompt::stdin_secret;

/// What every session token begins with.
const TOKEN_PREFIX: &str = "svc_st_";

/// End a session at once.
///
/// Takes a raw session token, which is itself the right to end its session, or the id of a listed session, which needs a
/// login: yours, or an administrator's. When it is the session that is stored here, it is forgotten too.
#[derive(Args)]
pub(crate) struct Revoke {
    /// Raw session token (`svc_st_…`), id of a listed session, or `-` to read either from standard input.
    #[arg(value_name = "SESSION_ID")]
    session_id: String,
}

/// What was named.
enum Named {
    /// The session's own token.
    Token(Secret),
    /// The id that the list shows.
    Listed(SessionId),
}

impl Command for Revoke {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                (
                    "End a session of the list",
                    "svc auth sessions revoke 01890a5d-ac96-774b-bcce-b302099a8057",
                ),
                ("End the session whose token stands on standard input", "svc auth sessions revoke -"),
            ],
            agent_notes: "Give a raw token through `-`, so that it does not show in the list of processes. Needs no login \
                          for a token. Ending a session that is ended already succeeds. Takes effect everywhere within \
                          seconds.",
            see_also: &["auth sessions list", "auth logout"],
            errors: &[
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::SessionNotFound),
                Failure::Api(ProblemKind::NotFound),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Ended>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let named = match self.session_id.as_str() {
            "-" => named(stdin_secret("session token or id").await?.expose().trim())?,
            argument => named(argument)?,
        };
        let api = context.api()?;
        let forgotten = match named {
            Named::Token(token) => {
                api.call(Method::POST, "/auth/sessions/logout").session(&token)?.done().await?;
                CredentialStore::of_this_user()?.update(|all| all.forget(&token))?
            }
            Named::Listed(id) => {
                let caller = context.session()?;
                let call =
                    api.call(Method::DELETE, &format!("/auth/sessions/{id}")).bearer(&caller.bearer)?;
                call.tenant(caller.tenant.as_ref()).done().await?;
                forget_if_own(&api, &caller).await?
            }
        };
        context.out().print(&Ended { revoked: true, forgotten })
    }
}

/// Tells the two apart. The text is not repeated in the error: it may be a credential.
fn named(text: &str) -> Result<Named> {
    if text.starts_with(TOKEN_PREFIX) {
        return Ok(Named::Token(Secret::new(text)));
    }
    text.parse().map(Named::Listed).map_err(|_| {
        Fault::InputInvalid
            .because(format!("a session is named by its token ({TOKEN_PREFIX}…) or by its id, a UUID"))
            .advising("Run `svc auth sessions list` to see the ids.")
    })
}

/// A listed id does not say whether it was the session that this command acted with; the service does.
async fn forget_if_own(api: &Api, caller: &Caller) -> Result<bool> {
    if caller.variable.is_some() {
        return Ok(false);
    }
    match api.call(Method::GET, "/auth/session").bearer(&caller.bearer)?.done().await {
        Err(error) if error.exit == Exit::Authentication => {
            CredentialStore::of_this_user()?.update(|all| all.forget(&caller.bearer))
        }
        // Alive, or not to be known now: what is stored stays.
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_and_an_id_are_told_apart_by_the_prefix() {
        assert!(matches!(named("svc_st_abc"), Ok(Named::Token(token)) if token.expose() == "svc_st_abc"));
        assert!(matches!(named("01890a5d-ac96-774b-bcce-b302099a8057"), Ok(Named::Listed(_))));
    }

    #[test]
    fn another_credential_is_refused_and_not_repeated() {
        let error = named("svc_ak_secret").err().unwrap();
        assert_eq!(error.exit, Exit::InvalidInput);
        assert!(!error.message.contains("svc_ak_secret"));
    }

    proptest! {
        #[test]
        fn whatever_does_not_begin_like_a_token_is_an_id_or_refused(text in "\\PC{0,40}") {
            match named(&text) {
                Ok(Named::Token(token)) => prop_assert!(token.expose().starts_with(TOKEN_PREFIX)),
                Ok(Named::Listed(id)) => prop_assert!(text.parse::<SessionId>() == Ok(id)),
                Err(_) => prop_assert!(!text.starts_with(TOKEN_PREFIX)),
            }
        }
    }
}
