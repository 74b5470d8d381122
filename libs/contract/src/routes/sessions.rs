//! `/auth/session` and `/auth/sessions`.

use super::{Access, Answer, Header, PAGING, Route, Type, routes};
use crate::session::{RevokeSessions, Session, Whoami};
use crate::{Page, ProblemKind};

routes! {
    "Sessions", "Who a credential is, and where a person is logged in.":

    /// Ask who a credential is
    WHOAMI = Route::get("/auth/session")
        .access(&[Access::Member, Access::AnyKey])
        .answers(&[Answer::json::<Whoami>(200, "Who stands behind the credential, and what it may be used for.")]);

    /// List a user's sessions
    LIST_SESSIONS = Route::get("/auth/sessions")
        .access(&[Access::Owner, Access::Admin])
        .headers(&[Header::User])
        .query(&[PAGING])
        .answers(&[Answer::json::<Page<Session>>(200, "A page of the live sessions, newest first.")])
        .problems(&[ProblemKind::NotFound]);

    /// End a session
    REVOKE_SESSION = Route::delete("/auth/sessions/{session_id}")
        .access(&[Access::Owner, Access::Admin])
        .answers(&[Answer::empty(204, "The session is dead.")]);

    /// End all sessions of a user
    REVOKE_SESSIONS = Route::delete("/auth/sessions")
        .access(&[Access::Owner, Access::Admin])
        .headers(&[Header::User])
        .query(&[Type::of::<RevokeSessions>()])
        .answers(&[Answer::empty(204, "The sessions are dead.")])
        .problems(&[ProblemKind::NotFound]);

    /// Log out
    ///
    /// Whoever holds the raw token may end its session; doing so again changes nothing.
    LOG_OUT = Route::post("/auth/sessions/logout")
        .access(&[Access::Proof])
        .headers(&[Header::Session])
        .answers(&[Answer::empty(204, "The session is dead.")])
        .problems(&[ProblemKind::SessionNotFound]);
}
