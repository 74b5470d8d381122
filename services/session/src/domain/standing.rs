//! What a session is made under: whose it is, and the versions of their credentials and their tenant at that time. It lives
//! while both still hold.

use tenancy::UserId;

/// A user's standing at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) user_id: UserId,
    pub(crate) credential_version: i64,
    pub(crate) session_version: i64,
}
