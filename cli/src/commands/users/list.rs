//! `svc users list`

use clap::Args;
use contract::identity::User;
use contract::{ProblemKind, UserStatus};

use crate::arguments::{Paging, word_of};
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::output::Listed;

/// List the users of the tenant, in the order in which they were invited.
///
/// Needs an administrator's session, or an API key with the scope `users:read`.
#[derive(Args)]
pub(crate) struct List {
    /// Only the user with this address.
    #[arg(long, value_name = "EMAIL")]
    email: Option<String>,
    /// Only users of this standing.
    #[arg(long, value_name = "STATUS", value_parser = word_of::<UserStatus>(UserStatus::ALL.iter().map(|it| it.as_str())))]
    status: Option<UserStatus>,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Caller,
            examples: &[
                (
                    "List all users of the tenant, one JSON object a line",
                    "svc users list --all --output ndjson",
                ),
                ("Find the id of a user", "svc users list --email bob@acme.example"),
                ("See the first ten who are disabled", "svc users list --status disabled --limit 10"),
            ],
            agent_notes: "Without --all or --limit it prints one page, and a warning on standard error when there are more. \
                          Somebody who was invited and has not accepted is a user of the status `invited`.",
            see_also: &["users get", "users invite", "invites list"],
            errors: &[Failure::Api(ProblemKind::Forbidden), Failure::Api(ProblemKind::InsufficientScope)],
            input_schema: None,
            output_schema: Some(schema_of::<Listed<User>>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller()?;
        let filter = [("email", self.email.as_deref()), ("status", self.status.map(UserStatus::as_str))];
        let api = context.api()?;
        let part = api.list_part("/users", &filter, self.paging.into(), |call| {
            Ok(call.bearer(&caller.bearer)?.tenant(caller.tenant.as_ref()))
        });
        context.print_part::<User>(part.await?)
    }
}
