//! `svc mails`: mails that are not sent, for the platform administrator.

use clap::Args;
use contract::identity::UndeliveredMail;
use contract::routes;

use crate::framework::api::Paging;
use crate::framework::catalog::{Examples, Names, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::Result;
use crate::framework::output::{Cell, ItemList, Row, id, name, optional, text, time};

group!(
    /// Show mails that are not sent, as the platform administrator.
    Mails {
        List(List),
    }
);

impl Row for UndeliveredMail {
    const EMPTY: &'static str = "All mails are sent.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("ID", id(self.mail_id)),
            ("TENANT", text(&self.tenant_id)),
            ("KIND", text(self.kind)),
            ("STATUS", text(self.status)),
            ("ERROR", optional(self.error.as_ref().map(name))),
            ("NEXT ATTEMPT", optional(self.next_attempt_at.as_ref().map(time))),
            ("CREATED", time(&self.created_at)),
            ("ATTEMPTS", text(self.attempts)),
            ("USER", optional(self.user_id.map(id))),
        ]
    }
}

/// List the mails that the mail server has not accepted.
///
/// Lists invites, password resets and notices of all tenants, the oldest first. A waiting mail is tried again; `svc-identity outbox
/// retry` sends a failed one again. Requires the platform token.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<UndeliveredMail>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_MAILS]);
    const EXAMPLES: Examples = &[("List all mails that are not sent", "svc mails list")];
    const AGENT_NOTES: &'static str =
        "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. A sent mail is not listed.";
    const SEE_ALSO: Names = &["invites list", "invites resend"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        context.connect(Self::REQUIRES).await?.print_list(routes::LIST_MAILS.path, &[], self.paging).await
    }
}
