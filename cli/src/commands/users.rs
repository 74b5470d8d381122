//! `svc users`: the people of a tenant.

mod accept_invite;
mod invite;

pub(super) use invite::DeliveryArgument;

use super::group;

group!(
    /// Invite people, and accept an invite.
    Users {
        Invite(invite::InviteCommand),
        AcceptInvite(accept_invite::AcceptInviteCommand),
    }
);
