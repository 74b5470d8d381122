//! `svc invites`: the invites of a tenant, once they are made.

mod list;
mod resend;
mod revoke;

use contract::identity::Invite;

use super::group;
use crate::context::Context;
use crate::error::Result;
use crate::output::{Report, Row, Table, time};

group!(
    /// Look after the invites that are under way.
    Invites {
        List(list::List),
        Resend(resend::Resend),
        Revoke(revoke::Revoke),
    }
);

/// Prints an invite that was just made or renewed.
pub(super) fn print(context: &Context, invite: &Invite) -> Result<()> {
    if invite.token.is_none() {
        context.out().notice("The link to accept the invite goes out by mail.");
    }
    context.out().print(invite)
}

impl Report for Invite {
    fn table(&self) -> Table {
        Table::of_fields([
            ("invite", Some(self.invite_id.to_string())),
            ("email", Some(self.email.clone())),
            ("role", Some(self.role.to_string())),
            ("status", Some(self.status.to_string())),
            ("expires", Some(time(&self.expires_at))),
            ("token", self.token.as_ref().map(|token| token.expose().to_owned())),
        ])
    }
}

impl Row for Invite {
    const HEADING: &'static [&'static str] = &["ID", "EMAIL", "ROLE", "STATUS", "MADE", "EXPIRES"];
    const NONE: &'static str = "No invite.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.invite_id.to_string(),
            self.email.clone(),
            self.role.to_string(),
            self.status.to_string(),
            time(&self.created_at),
            time(&self.expires_at),
        ]
    }
}
