//! Tenants, their users and invites.

use super::{Access, Header, Operation, PAGING, RateLimit, Route, RouteResponse, SchemaRef, routes};
use crate::identity::{
    AcceptInvite, AcceptedInvite, CreateTenant, InspectInvite, InspectedInvite, Invite, InviteFilter,
    InviteUser, PatchTenant, PatchUser, ResendInvite, Tenant, UndeliveredMail, User, UserExport, UserFilter,
};
use crate::{Page, ProblemKind, Scope};

const INVITER: &[Access] = &[Access::Admin, Access::Key(Scope::UsersWrite), Access::PlatformAdmin];

routes! {
    USERS = "Users", "The users of a tenant.":

    /// List the users of the tenant
    LIST_USERS = Operation::get("/users")
        .access(&[Access::Admin, Access::Key(Scope::UsersRead), Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .query(&[PAGING, SchemaRef::new::<UserFilter>()])
        .responses(&[RouteResponse::json::<Page<User>>(200, "A page of users, oldest first.")])
        .problems(&[ProblemKind::NotFound]);

    /// Get a user
    GET_USER = Operation::get("/users/{user_id}")
        .access(&[Access::Owner, Access::Admin, Access::Key(Scope::UsersRead), Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .responses(&[RouteResponse::json::<User>(200, "The user.")]);

    /// Export the data about a user
    ///
    /// The account, its invites, sessions and API keys, without credentials. `GET /audit` with `user_id` has the audit events.
    EXPORT_USER = Operation::get("/users/{user_id}/export")
        .access(&[Access::Owner, Access::Admin])
        .responses(&[RouteResponse::json::<UserExport>(200, "The data about the user.")]);

    /// Change the role or the status of a user
    ///
    /// Absent fields are unchanged. `disabled` revokes the sessions of the user; `active` also ends a lockout after failed
    /// logins, and a lock of the second factor after wrong codes. API keys that the user created stay active unless `revoke_api_keys`
    /// is set, which also works alone. A change of the role or of an administrator, and `active` for a disabled user, require a session
    /// that was created with a password at most ten minutes ago. The platform administrator cannot change the role. If the tenant requires
    /// a second factor of administrators, the role `admin` revokes the sessions of the user.
    UPDATE_USER = Operation::patch("/users/{user_id}")
        .idempotent()
        .access(&[Access::Admin, Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .json::<PatchUser>()
        .responses(&[RouteResponse::json::<User>(200, "The updated user.")])
        .problems(&[ProblemKind::ReauthenticationRequired, ProblemKind::UserInvited, ProblemKind::LastAdmin]);

    /// Delete a user and erase the personal data
    ///
    /// Revokes the sessions of the user and the API keys that the user created, and deletes the e-mail address, the password, the
    /// invites of the address and the mails that wait. Only the id remains, for audit events; it is not used again. The address
    /// can be invited again. A repeated request succeeds. An invited user can be deleted too. Audit events expire with their stream.
    DELETE_USER = Operation::delete("/users/{user_id}")
        .access(&[Access::RecentAdmin])
        .responses(&[RouteResponse::empty(204, "The user is deleted.")])
        .problems(&[ProblemKind::LastAdmin]);
}

routes! {
    INVITES = "Invites", "Invite users with a single-use token.":

    /// Invite a user into the tenant
    ///
    /// Sends the token by e-mail, or returns it with `"delivery": "response"`. An administrator needs a session that was created
    /// with a password at most ten minutes ago to invite another administrator. An API key can invite members only, and only by
    /// e-mail. An address that looks like the address of another user is rejected with `email_similar`.
    ///
    /// Three invites are mailed to one address, then one per 20 minutes, over all tenants; the next one is 429 `rate_limited`.
    /// The invites of a tenant per hour, its pending invites and its users are limited too.
    INVITE_USER = Operation::post("/users/invite")
        .access(INVITER)
        .headers(&[Header::TenantOfPlatformAdmin])
        .json::<InviteUser>()
        .responses(&[RouteResponse::json::<Invite>(201, "The invite.")])
        .problems(&[
            ProblemKind::ReauthenticationRequired,
            ProblemKind::NotFound,
            ProblemKind::UserExists,
            ProblemKind::EmailSimilar,
            ProblemKind::InvitePending,
            ProblemKind::TooManyInvites,
            ProblemKind::TooManyUsers,
            ProblemKind::MailUnavailable,
        ]);

    /// List the invites of the tenant
    ///
    /// `mail` has the status of the last mail of each invite. After `failed`, correct the address with a new invite, or resend
    /// the invite.
    LIST_INVITES = Operation::get("/users/invites")
        .access(&[Access::Admin, Access::Key(Scope::UsersRead), Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .query(&[PAGING, SchemaRef::new::<InviteFilter>()])
        .responses(&[RouteResponse::json::<Page<Invite>>(200, "A page of invites, oldest first.")])
        .problems(&[ProblemKind::NotFound]);

    /// Resend an invite
    ///
    /// Issues a new token with the full lifetime. A token in the response invalidates the previous one at once. By e-mail, the
    /// previous one stays valid until the mail server has accepted the new mail. The invite of an administrator needs the same
    /// recent login as its creation. An API key can resend invites of members only, and only by e-mail. The limits of invites
    /// apply.
    RESEND_INVITE = Operation::post("/users/invites/{invite_id}/resend")
        .access(INVITER)
        .headers(&[Header::TenantOfPlatformAdmin])
        .json::<ResendInvite>()
        .responses(&[RouteResponse::json::<Invite>(200, "The updated invite.")])
        .problems(&[ProblemKind::ReauthenticationRequired, ProblemKind::UserExists, ProblemKind::MailUnavailable]);

    /// Revoke an invite
    ///
    /// Deletes the invited user. An API key can revoke invites of members only.
    REVOKE_INVITE = Operation::delete("/users/invites/{invite_id}")
        .access(INVITER)
        .headers(&[Header::TenantOfPlatformAdmin])
        .responses(&[RouteResponse::empty(204, "The invite is revoked.")])
        .problems(&[ProblemKind::UserExists]);

    /// Get the invite of a token
    ///
    /// Does not use up the token.
    INSPECT_INVITE = Operation::post("/users/accept-invite/inspect")
        .idempotent()
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Token)
        .json::<InspectInvite>()
        .responses(&[RouteResponse::json::<InspectedInvite>(200, "The tenant, the e-mail address and the role of the invite.")])
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::Overloaded]);

    /// Accept an invite
    ///
    /// The token identifies tenant and user. A rejected password does not use up the token.
    ACCEPT_INVITE = Operation::post("/users/accept-invite")
        .access(&[Access::RequestSecret])
        .rate_limit(RateLimit::Token)
        .json::<AcceptInvite>()
        .responses(&[RouteResponse::json::<AcceptedInvite>(201, "The user, who can now log in.")])
        .sets_password()
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::Overloaded]);
}

routes! {
    TENANTS = "Tenants", "Isolated organizations, created by the platform administrator.":

    /// Create a tenant
    ///
    /// With `admin_email`, also invites the first administrator; with `"delivery": "response"`, the response contains the
    /// token of that invite.
    CREATE_TENANT = Operation::post("/tenants")
        .access(&[Access::PlatformAdmin])
        .json::<CreateTenant>()
        .responses(&[RouteResponse::json::<Tenant>(201, "The tenant, with the invite of the administrator if requested.")])
        .problems(&[ProblemKind::TenantExists, ProblemKind::TotpUnavailable, ProblemKind::MailUnavailable]);

    /// List the tenants
    LIST_TENANTS = Operation::get("/tenants")
        .access(&[Access::PlatformAdmin])
        .query(&[PAGING])
        .responses(&[RouteResponse::json::<Page<Tenant>>(200, "A page of tenants, ordered by id.")]);

    /// Get a tenant
    GET_TENANT = Operation::get("/tenants/{tenant_id}")
        .access(&[Access::PlatformAdmin, Access::Member])
        .responses(&[RouteResponse::json::<Tenant>(200, "The tenant.")])
        .problems(&[ProblemKind::Forbidden]);

    /// Rename, suspend or resume a tenant, or change its quota or its rules for logins
    ///
    /// Absent fields are unchanged. Suspending revokes the sessions of the tenant and rejects its API keys until it is
    /// resumed. A new quota applies within seconds, a new rule at the next login. A second factor cannot be required without
    /// `SVC_FACTOR_KEY`.
    UPDATE_TENANT = Operation::patch("/tenants/{tenant_id}")
        .idempotent()
        .access(&[Access::PlatformAdmin])
        .json::<PatchTenant>()
        .responses(&[RouteResponse::json::<Tenant>(200, "The updated tenant.")])
        .problems(&[ProblemKind::TotpUnavailable]);

    /// Delete a suspended tenant and erase its personal data
    ///
    /// Deletes the users, invites, sessions and API keys of the tenant. Cannot be undone. The id is not used again: creating a tenant
    /// with it is `tenant_exists`. A repeated request succeeds. The rows of a large tenant are deleted within minutes after the
    /// response. Stored events expire with their stream.
    DELETE_TENANT = Operation::delete("/tenants/{tenant_id}")
        .access(&[Access::PlatformAdmin])
        .responses(&[RouteResponse::empty(204, "The tenant is deleted.")])
        .problems(&[ProblemKind::TenantActive]);
}

routes! {
    MAILS = "Mails", "Mails that are not sent yet, for the platform administrator.":

    /// List the mails that the mail server has not accepted
    ///
    /// Mails of all tenants: invites, password resets and notices. A sent mail is not listed. `svc-identity outbox retry` sends a
    /// failed mail again.
    LIST_MAILS = Operation::get("/mails")
        .access(&[Access::PlatformAdmin])
        .query(&[PAGING])
        .responses(&[RouteResponse::json::<Page<UndeliveredMail>>(200, "A page of mails, oldest first.")]);
}
