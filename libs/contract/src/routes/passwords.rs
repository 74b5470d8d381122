//! `/auth/password`.

use super::{Access, Answer, Header, Route, routes};
use crate::ProblemKind;
use crate::identity::{ChangePassword, ConfirmReset, Login, RequestReset};
use crate::session::IssuedSession;

routes! {
    "Passwords", "Log in, change a password, set a new one.":

    /// Log in with e-mail and password
    ///
    /// The answer is the only place where the raw session token stands. Every refusal is the same `login_failed`, whether
    /// or not there is such a tenant or account.
    LOG_IN = Route::post("/auth/password/login")
        .access(&[Access::Proof])
        .headers(&[Header::Tenant])
        .takes::<Login>()
        .answers(&[Answer::json::<IssuedSession>(200, "The session; send `session_id` as `Authorization: Bearer`.")])
        .problems(&[ProblemKind::LoginFailed, ProblemKind::Overloaded]);

    /// Change a password
    ///
    /// The current password is the proof. All sessions of the user end, except for the one that is sent as bearer.
    CHANGE_PASSWORD = Route::post("/auth/password/change")
        .access(&[Access::Proof, Access::Owner])
        .headers(&[Header::Tenant, Header::User])
        .takes::<ChangePassword>()
        .answers(&[Answer::empty(204, "The password is changed.")])
        .sets_password()
        .problems(&[ProblemKind::LoginFailed, ProblemKind::NotFound, ProblemKind::Overloaded]);

    /// Ask for a password reset
    ///
    /// Answered the same in every case, also when the request is malformed. Where there is such an account, it gets a
    /// mail with a single-use token.
    REQUEST_PASSWORD_RESET = Route::post("/auth/password/reset")
        .access(&[Access::Anybody])
        .headers(&[Header::Tenant])
        .takes::<RequestReset>()
        .answers(&[Answer::empty(204, "Whatever was sent.")])
        .uniform_response();

    /// Set a new password with a reset token
    ///
    /// All sessions of the user end. A refused password does not spend the token.
    CONFIRM_PASSWORD_RESET = Route::post("/auth/password/reset/confirm")
        .access(&[Access::Proof])
        .takes::<ConfirmReset>()
        .answers(&[Answer::empty(204, "The password is set.")])
        .sets_password()
        .problems(&[ProblemKind::TokenInvalid, ProblemKind::Overloaded]);
}
