//! An invite's state, as time makes it.

use chrono::{DateTime, Utc};
use contract::identity::InviteStatus;

/// The state that people see: a pending invite past its time has expired.
pub(crate) fn status(stored: &str, expires_at: DateTime<Utc>, now: DateTime<Utc>) -> InviteStatus {
    match stored {
        "accepted" => InviteStatus::Accepted,
        "revoked" => InviteStatus::Revoked,
        "pending" if expires_at > now => InviteStatus::Pending,
        // A constraint of the table keeps other words out.
        _ => InviteStatus::Expired,
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_pending_invite_expires_at_its_time_and_a_settled_one_never() {
        let end = DateTime::UNIX_EPOCH;
        let before = end - TimeDelta::microseconds(1);
        assert_eq!(status("pending", end, before), InviteStatus::Pending);
        assert_eq!(status("pending", end, end), InviteStatus::Expired);
        assert_eq!(status("accepted", end, end), InviteStatus::Accepted);
        assert_eq!(status("revoked", end, before), InviteStatus::Revoked);
    }
}
