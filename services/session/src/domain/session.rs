//! Sessions: active until they are revoked or expire by idle timeout or absolute lifetime.

use std::net::IpAddr;
use std::time::Duration;

use authn::PAGE_SESSION_LIFETIME;
use chrono::{DateTime, TimeDelta, Utc};
use contract::session::{AuthMethod, SessionMethod};
use service::config::{Setting, Variable};
use tenancy::SessionId;

use super::account_status::{AccountStatus, AccountVersions};

/// The maximum number of active sessions of a user. A new session revokes the least recently used one.
pub(crate) const MAX_SESSIONS: i64 = 50;
/// The number of stored sessions of a user from which a new session deletes the ones that ended first. A login must not fail, and rows of
/// ended sessions are otherwise kept for a day.
pub(crate) const MAX_STORED_SESSIONS: i64 = 200;
/// The number of ended sessions that remain then. The following logins delete none.
pub(crate) const KEPT_ENDED_SESSIONS: i64 = 100;
/// Minimum time between two recorded uses of a credential: at most one write per minute.
pub(crate) const TOUCH_INTERVAL: TimeDelta = TimeDelta::minutes(1);
/// How long after its expiry a session is recorded as expired. The clocks of replicas differ, and a use before the idle timeout can be
/// saved later.
pub(crate) const EXPIRY_DELAY: TimeDelta = TimeDelta::minutes(1);

/// A session to be created.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) versions: AccountVersions,
    pub(crate) method: SessionMethod,
    /// How the user authenticated.
    pub(crate) amr: Vec<AuthMethod>,
    /// The address of the client.
    pub(crate) ip: Option<IpAddr>,
    /// The `User-Agent` of the client.
    pub(crate) user_agent: Option<String>,
    /// The name of the device that the user approved.
    pub(crate) client_name: Option<String>,
}

service::variables! {
    /// The idle timeouts and absolute lifetimes of sessions, by login method.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lifetimes {
        /// Idle timeout of a session from a login with the password or a passkey.
        pub(crate) password_idle: Duration = lifetime("SVC_SESSION_IDLE", "1h"),
        /// Absolute lifetime of a session from a login with the password or a passkey.
        pub(crate) password_max: Duration = lifetime("SVC_SESSION_MAX", "12h"),
        /// Idle timeout of a session from a device login.
        pub(crate) device_idle: Duration = lifetime("SVC_DEVICE_IDLE", "7d"),
        /// Absolute lifetime of a session from a device login.
        pub(crate) device_max: Duration = lifetime("SVC_DEVICE_MAX", "30d"),
    }
}

fn lifetime(name: &'static str, default: &'static str) -> Setting<Duration> {
    Variable::new(name, "duration, 5m to 30d")
        .default(default)
        .duration(Duration::from_mins(5), Duration::from_hours(30 * 24))
}

/// A session with all values that determine whether it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) created_under: AccountVersions,
    pub(crate) lifecycle: SessionLifecycle,
}

impl Session {
    /// Returns whether the session can be used: it is valid, and the account status permits it.
    pub(crate) fn is_active(&self, account: &AccountStatus, now: DateTime<Utc>) -> bool {
        self.lifecycle.is_valid(now) && account.permits_session(self.id, &self.created_under)
    }
}

/// The times that determine whether a session is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLifecycle {
    pub(crate) last_seen_at: DateTime<Utc>,
    pub(crate) idle_timeout: TimeDelta,
    /// When the session expires if it is not used again. At the latest at the end of the absolute lifetime.
    pub(crate) idle_expires_at: DateTime<Utc>,
    /// The end of the absolute lifetime.
    pub(crate) expires_at: DateTime<Utc>,
    /// When the session was revoked (by its owner, by an administrator, or by the limit of sessions per user), or expired as the sweep
    /// has recorded.
    pub(crate) inactive_since: Option<DateTime<Utc>>,
}

impl SessionLifecycle {
    /// The lifecycle of a session that is created now.
    pub(crate) fn start(lifetimes: &Lifetimes, method: SessionMethod, now: DateTime<Utc>) -> Self {
        let (idle, max) = match method {
            SessionMethod::Password => (lifetimes.password_idle, lifetimes.password_max),
            SessionMethod::Device => (lifetimes.device_idle, lifetimes.device_max),
            SessionMethod::Page => (PAGE_SESSION_LIFETIME, PAGE_SESSION_LIFETIME),
        };
        // The configuration limits both to 30 days, so the conversion succeeds.
        let delta = |duration| TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        let (idle_timeout, expires_at) = (delta(idle), now + delta(max));
        Self {
            last_seen_at: now,
            idle_timeout,
            idle_expires_at: expires_at.min(now + idle_timeout),
            expires_at,
            inactive_since: None,
        }
    }

    /// Returns whether the session is neither revoked nor expired.
    pub(crate) fn is_valid(&self, now: DateTime<Utc>) -> bool {
        self.inactive_since.is_none() && now < self.idle_expires_at
    }

    /// Records a use of a valid session and restarts its idle timeout. Returns `None` if there is nothing to record:
    /// the session is not valid, or the last recorded use is less than a minute ago.
    pub(crate) fn touch(self, now: DateTime<Utc>) -> Option<Self> {
        (self.is_valid(now) && is_use_due(Some(self.last_seen_at), now)).then(|| Self {
            last_seen_at: now,
            idle_expires_at: self.expires_at.min(now + self.idle_timeout),
            ..self
        })
    }

    /// Revokes the session. Returns `None` if its end is recorded already. Until then, an expired session can still be revoked.
    pub(crate) fn revoke(self, now: DateTime<Utc>) -> Option<Self> {
        let inactive_since = Some(now.min(self.idle_expires_at));
        self.inactive_since.is_none().then_some(Self { inactive_since, ..self })
    }
}

/// Returns whether a use of a credential is recorded: the first one is, and then at most one per minute.
pub(crate) fn is_use_due(last_used_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    last_used_at.is_none_or(|last| now - last >= TOUCH_INTERVAL)
}

#[cfg(test)]
mod tests {
    use contract::{Role, TenantStatus, UserStatus};
    use proptest::prelude::*;
    use tenancy::UserId;

    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes {
        password_idle: Duration::from_hours(1),
        password_max: Duration::from_hours(12),
        device_idle: Duration::from_hours(48),
        device_max: Duration::from_hours(24),
    };

    fn start() -> (SessionLifecycle, DateTime<Utc>) {
        let now = DateTime::UNIX_EPOCH;
        (SessionLifecycle::start(&LIFETIMES, SessionMethod::Password, now), now)
    }

    #[test]
    fn session_expires_by_idle_timeout_or_absolute_lifetime() {
        let (session, now) = start();
        assert_eq!(session.idle_expires_at, now + TimeDelta::hours(1));
        assert_eq!(session.expires_at, now + TimeDelta::hours(12));
        assert!(session.is_valid(now + TimeDelta::minutes(59)));
        assert!(!session.is_valid(now + TimeDelta::hours(1)));
    }

    #[test]
    fn idle_timeout_ends_with_the_absolute_lifetime() {
        let device = SessionLifecycle::start(&LIFETIMES, SessionMethod::Device, DateTime::UNIX_EPOCH);
        assert_eq!(device.idle_expires_at, device.expires_at);
    }

    #[test]
    fn a_session_is_active_while_neither_it_nor_its_account_ends() {
        let (lifecycle, now) = start();
        let versions =
            AccountVersions { user_id: UserId::generate(), credential_version: 1, session_version: 1 };
        let account = AccountStatus {
            versions,
            role: Role::Member,
            user_status: UserStatus::Active,
            tenant_status: TenantStatus::Active,
            kept_session_id: None,
            needs_factor: false,
        };
        let disabled = AccountStatus { user_status: UserStatus::Disabled, ..account };
        let session = Session { id: SessionId::generate(), created_under: versions, lifecycle };
        assert!(session.is_active(&account, now));
        assert!(!session.is_active(&disabled, now));
        assert!(!session.is_active(&account, now + TimeDelta::hours(1)));
    }

    #[test]
    fn a_use_restarts_the_idle_timeout() {
        let (session, now) = start();
        let later = now + TimeDelta::minutes(50);
        let touched = session.touch(later).unwrap();
        let idle_expires_at = later + TimeDelta::hours(1);
        assert_eq!(touched, SessionLifecycle { last_seen_at: later, idle_expires_at, ..session });
    }

    #[test]
    fn use_is_recorded_once_per_minute() {
        let seen = DateTime::UNIX_EPOCH;
        assert!(is_use_due(None, seen));
        assert!(!is_use_due(Some(seen), seen + TimeDelta::seconds(59)));
        assert!(is_use_due(Some(seen), seen + TimeDelta::seconds(60)));
        // After the clock is set back, no use is recorded until it has caught up.
        assert!(!is_use_due(Some(seen), seen - TimeDelta::hours(1)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(i64),
        Touch,
        Revoke,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop_oneof![0_i64..120, 1_800_i64..4_000].prop_map(Step::Wait),
            4 => Just(Step::Touch),
            1 => Just(Step::Revoke),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn inactive_session_never_becomes_active_again(steps in steps()) {
            let (mut session, created_at) = start();
            let mut now = created_at;
            let (mut was_valid, mut is_revoked) = (true, false);
            for step in steps {
                match step {
                    Step::Wait(seconds) => now += TimeDelta::seconds(seconds),
                    Step::Touch => {
                        if let Some(touched) = session.touch(now) {
                            prop_assert!(was_valid && now - session.last_seen_at >= TOUCH_INTERVAL);
                            prop_assert!(touched.idle_expires_at >= session.idle_expires_at);
                            prop_assert!(touched.idle_expires_at <= touched.expires_at);
                            session = touched;
                        }
                    }
                    Step::Revoke => {
                        let revoked = session.revoke(now);
                        prop_assert_eq!(revoked.is_none(), is_revoked);
                        session = revoked.unwrap_or(session);
                        is_revoked = true;
                        prop_assert!(session.inactive_since <= Some(session.idle_expires_at.min(now)));
                    }
                }
                let is_valid = session.is_valid(now);
                prop_assert!(!is_valid || (was_valid && !is_revoked && now < created_at + TimeDelta::hours(12)));
                was_valid = is_valid;
            }
        }
    }
}
