//! `/users/invite`, `/users/invites` and `/users/accept-invite`.

use super::{Access, Answer, Header, PAGING, Route, Type, routes};
use crate::identity::{AcceptInvite, AcceptedInvite, Invite, InviteFilter, InviteUser, ResendInvite};
use crate::{Page, ProblemKind, Scope};

const INVITER: &[Access] = &[Access::Admin, Access::Key(Scope::UsersWrite), Access::PlatformAdmin];

routes! {
    "Invites", "How people come into a tenant: by a token that can be used once.":

    /// Invite somebody into the tenant
    ///
    /// By mail, or with `"delivery": "response"` by handing over the token that the answer then holds. A key can only
    /// invite members, and only by mail.
    INVITE_USER = Route::post("/users/invite")
        .access(INVITER)
        .headers(&[Header::TenantOfPlatformAdmin])
        .takes::<InviteUser>()
        .answers(&[Answer::json::<Invite>(201, "The invite.")])
        .problems(&[
            ProblemKind::NotFound,
            ProblemKind::UserExists,
            ProblemKind::InvitePending,
            ProblemKind::MailUnavailable,
        ]);

    /// List the invites of the tenant
    LIST_INVITES = Route::get("/users/invites")
        .access(&[Access::Admin, Access::Key(Scope::UsersRead), Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .query(&[PAGING, Type::of::<InviteFilter>()])
        .answers(&[Answer::json::<Page<Invite>>(200, "A page of invites, oldest first.")]);

    /// Send an invite again
    ///
    /// It gets a new token and its full time; the old token is dead. A key can only send invites of members, and only
    /// by mail.
    RESEND_INVITE = Route::post("/users/invites/{invite_id}/resend")
        .access(INVITER)
        .headers(&[Header::TenantOfPlatformAdmin])
        .takes::<ResendInvite>()
        .answers(&[Answer::json::<Invite>(200, "The invite as it is now.")])
        .problems(&[ProblemKind::UserExists, ProblemKind::MailUnavailable]);

    /// Take an invite back
    ///
    /// A key can only take back invites of members.
    REVOKE_INVITE = Route::delete("/users/invites/{invite_id}")
        .access(INVITER)
        .headers(&[Header::TenantOfPlatformAdmin])
        .answers(&[Answer::empty(204, "The invite's token is dead.")])
        .problems(&[ProblemKind::UserExists]);

    /// Accept an invite
    ///
    /// The token says who is invited and where; a refused password does not spend it.
    ACCEPT_INVITE = Route::post("/users/accept-invite")
        .access(&[Access::Proof])
        .takes::<AcceptInvite>()
        .answers(&[Answer::json::<AcceptedInvite>(201, "The user, who can log in now.")])
        .sets_password()
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::Overloaded]);
}
