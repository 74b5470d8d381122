//! `svc auth password reset`

use clap::Args;
use contract::identity::RequestReset;
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Report, Table};

/// Ask for a mail with which a forgotten password can be replaced.
///
/// Says the same whether or not there is such an account. The password stays as it is until the mail's link or token is
/// used, within the hour.
#[derive(Args)]
pub(crate) struct Reset {
    /// E-mail address of the account; asked for when it is left out.
    #[arg(long, value_name = "EMAIL")]
    email: Option<String>,
}

/// A reset that was asked for.
#[derive(Serialize, JsonSchema)]
struct Requested {
    /// Always true. Nothing says whether there is such an account.
    requested: bool,
}

impl Report for Requested {
    fn table(&self) -> Table {
        Table::of_text("If there is such an account, a mail is on its way to it.")
    }
}

impl Command for Reset {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Service,
            examples: &[(
                "Ask for a new password",
                "svc auth password reset --email ada@acme.example --tenant acme",
            )],
            agent_notes: "Succeeds for any address, known or not, also when too many were asked for: success says nothing. \
                          Only the last mail's token works. Where no mail arrives, an administrator cannot see why either; \
                          check address and tenant.",
            see_also: &["auth password confirm-reset", "auth password change", "auth login"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Requested>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let tenant = context.tenant().await?;
        let email = match self.email {
            Some(email) => email,
            None => context.prompt().line("E-mail", "--email").await?,
        };
        let api = context.api()?;
        let call = api.call(Method::POST, "/auth/password/reset").tenant(Some(&tenant));
        call.json(&RequestReset { email })?.done().await?;
        context.out().print(&Requested { requested: true })
    }
}
