//! `/users`, except for invites.

use super::{Access, Answer, Header, PAGING, Route, Type, routes};
use crate::identity::{PatchUser, User, UserFilter};
use crate::{Page, ProblemKind, Scope};

routes! {
    "Users", "The people of a tenant.":

    /// List the users of the tenant
    LIST_USERS = Route::get("/users")
        .access(&[Access::Admin, Access::Key(Scope::UsersRead)])
        .query(&[PAGING, Type::of::<UserFilter>()])
        .answers(&[Answer::json::<Page<User>>(200, "A page of users, oldest first.")]);

    /// Read a user
    GET_USER = Route::get("/users/{user_id}")
        .access(&[Access::Owner, Access::Admin, Access::Key(Scope::UsersRead)])
        .answers(&[Answer::json::<User>(200, "The user.")]);

    /// Change a user's role, disable or enable a user
    ///
    /// What is absent stays. Disabling ends the user's sessions at once; `active` also ends a lock-out after failed
    /// logins. The operator changes the status alone.
    UPDATE_USER = Route::patch("/users/{user_id}")
        .access(&[Access::Admin, Access::PlatformAdmin])
        .headers(&[Header::TenantOfPlatformAdmin])
        .takes::<PatchUser>()
        .answers(&[Answer::json::<User>(200, "The user as they are now.")])
        .problems(&[ProblemKind::UserInvited, ProblemKind::LastAdmin]);
}
