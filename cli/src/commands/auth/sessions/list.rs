//! `svc auth sessions list`

use clap::Args;
use contract::ProblemKind;
use contract::session::Session;
use tenancy::UserId;

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Listed, Row, minute};

/// List the live sessions of a user.
#[derive(Args)]
pub(crate) struct List {
    /// Whose sessions; your own when it is left out. Those of others need an administrator.
    #[arg(long, value_name = "UUID")]
    user_id: Option<UserId>,
}

/// What tells sessions apart, narrow enough for a terminal; the JSON has the rest.
impl Row for Session {
    const HEADING: &'static [&'static str] =
        &["ID", "CREATED", "LAST SEEN", "ENDS UNUSED", "ADDRESS", "CURRENT"];
    const NONE: &'static str = "No live session.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            minute(&self.created_at),
            minute(&self.last_seen_at),
            minute(&self.expires_at.min(self.idle_expires_at)),
            self.ip.clone().unwrap_or_default(),
            if self.current { "*" } else { "" }.to_owned(),
        ]
    }
}

impl Command for List {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                ("List your own sessions", "svc auth sessions list"),
                (
                    "List those of another user, as an administrator",
                    "svc auth sessions list --user-id 01890a5d-ac96-774b-bcce-b302099a8057",
                ),
            ],
            agent_notes: "A user of another tenant is answered like one that does not exist. The ids are no credentials; \
                          `auth sessions revoke` takes them.",
            see_also: &["auth sessions revoke", "auth whoami"],
            errors: &[Failure::Local(Fault::InputInvalid), Failure::Api(ProblemKind::NotFound)],
            input_schema: None,
            output_schema: Some(schema_of::<Listed<Session>>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let (caller, api) = (context.session()?, context.api()?);
        let user = match self.user_id {
            Some(user) => user,
            None => caller.person(&api).await?.user,
        };
        let items: Vec<Session> = api
            .list("/auth/sessions", |call| {
                Ok(call.bearer(&caller.bearer)?.tenant(caller.tenant.as_ref()).user(user))
            })
            .await?;
        context.out().print(&Listed { items })
    }
}
