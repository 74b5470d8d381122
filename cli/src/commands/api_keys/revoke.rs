//! `svc api-keys revoke`

use clap::Args;
use contract::ProblemKind;
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::KeyId;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Report, Table};

/// Revoke an API key: whoever holds it is refused from now on.
///
/// Needs an administrator's session. Asks before it acts.
#[derive(Args)]
pub(crate) struct Revoke {
    /// Id of the key, as `svc api-keys list` shows it.
    #[arg(value_name = "KEY_ID")]
    key_id: KeyId,
}

/// A key that was revoked.
#[derive(Serialize, JsonSchema)]
struct Revoked {
    /// Its id.
    key_id: KeyId,
    /// Always true: it works no longer, now or before.
    revoked: bool,
}

impl Report for Revoked {
    fn table(&self) -> Table {
        Table::of_text("The API key is revoked.")
    }
}

impl Command for Revoke {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                (
                    "Revoke a key, and be asked first",
                    "svc api-keys revoke 01890a5d-ac96-774b-bcce-b302099a8057",
                ),
                ("The same from a script", "svc api-keys revoke 01890a5d-ac96-774b-bcce-b302099a8057 --yes"),
            ],
            agent_notes: "Needs --yes where nobody can be asked; pass it only when the person you work for wants it: \
                          programs that send with the key stop. Repeating it succeeds.",
            see_also: &["api-keys create", "api-keys list"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::Declined),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::NotFound),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Revoked>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.session()?;
        context.prompt().confirm(&format!("Revoke API key {}?", self.key_id)).await?;
        let api = context.api()?;
        let call = api.call(Method::DELETE, &format!("/api-keys/{}", self.key_id)).bearer(&caller.bearer)?;
        call.tenant(caller.tenant.as_ref()).done().await?;
        context.out().print(&Revoked { key_id: self.key_id, revoked: true })
    }
}
