//! `svc auth token`

use clap::Args;
use contract::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::output::{Report, Table};

/// Print the raw session token, for another program to send as a bearer.
///
/// Whoever has the token acts as you. Pass it on through a pipe or a variable, not as an argument.
#[derive(Args)]
pub(crate) struct Token {}

/// A raw session token.
#[derive(Serialize, JsonSchema)]
struct RawToken {
    /// The token (`svc_st_…`).
    token: Secret,
}

impl Report for RawToken {
    fn table(&self) -> Table {
        Table::of_text(self.token.expose())
    }
}

impl Command for Token {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::StoredSession,
            examples: &[("Print the token of the current session", "svc auth token")],
            agent_notes: "The output is a credential: do not log it, do not show it. Works offline.",
            see_also: &["auth login", "auth sessions revoke", "api"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<RawToken>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        context.out().print(&RawToken { token: context.session()?.bearer })
    }
}
