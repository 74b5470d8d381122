//! `svc auth logout`

use clap::Args;
use reqwest::Method;

use crate::catalog::{Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::commands::auth::sessions::Ended;
use crate::context::Context;
use crate::credentials::CredentialStore;
use crate::error::{Exit, Result};

/// End the session that is acted with, and forget it here.
///
/// A session that the service no longer knows is forgotten all the same. When the service cannot be reached, the session
/// lives on, and stays stored.
#[derive(Args)]
pub(crate) struct Logout {}

impl Command for Logout {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[("Log out of the tenant of the last login", "svc auth logout")],
            agent_notes: "Acts on SVC_TOKEN when it is set, else on the stored session of the tenant. Running it twice ends \
                          with exit status 4 the second time: nothing is stored any more.",
            see_also: &["auth login", "auth sessions revoke"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Ended>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let token = context.session()?.bearer;
        let call = context.api()?.call(Method::POST, "/auth/sessions/logout").session(&token)?.done().await;
        match call {
            Err(error) if error.exit != Exit::NotFound => return Err(error),
            _ => {}
        }
        let forgotten = CredentialStore::of_this_user()?.update(|all| all.forget(&token))?;
        context.out().print(&Ended { revoked: true, forgotten })
    }
}
