//! `svc users`: the people of a tenant.

mod accept_invite;
mod disable;
mod enable;
mod get;
mod invite;
mod list;
mod set_role;

use contract::identity::{PatchUser, User};
use reqwest::Method;
use tenancy::UserId;

pub(super) use invite::DeliveryArgument;

use super::group;
use crate::context::{Caller, Context};
use crate::error::Result;
use crate::output::{Report, Row, Table, time};

group!(
    /// Invite people, see them, and say what they may do.
    Users {
        Invite(invite::InviteCommand),
        AcceptInvite(accept_invite::AcceptInviteCommand),
        List(list::List),
        Get(get::Get),
        Disable(disable::Disable),
        Enable(enable::Enable),
        SetRole(set_role::SetRole),
    }
);

/// Changes a user, and prints what became of them.
async fn patch(context: &Context, caller: &Caller, user: UserId, patch: &PatchUser) -> Result<()> {
    let api = context.api()?;
    let call = api.call(Method::PATCH, &format!("/users/{user}")).bearer(&caller.bearer)?;
    let user: User = call.tenant(caller.tenant.as_ref()).json(patch)?.fetch().await?;
    context.out().print(&user)
}

impl Report for User {
    fn table(&self) -> Table {
        Table::of_fields([
            ("user", Some(self.user_id.to_string())),
            ("email", Some(self.email.clone())),
            ("role", Some(self.role.to_string())),
            ("status", Some(self.status.to_string())),
            ("invited", Some(time(&self.created_at))),
            ("changed", Some(time(&self.updated_at))),
        ])
    }
}

impl Row for User {
    const HEADING: &'static [&'static str] = &["ID", "EMAIL", "ROLE", "STATUS", "INVITED"];
    const NONE: &'static str = "No user.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.user_id.to_string(),
            self.email.clone(),
            self.role.to_string(),
            self.status.to_string(),
            time(&self.created_at),
        ]
    }
}
