//! Login throttling: back-off per account and source address, lockout per account, and a limit of attempts in flight.
//!
//! An attempt is admitted before the password is verified, and settled afterwards with an [`Outcome`]. The rules are here only: the
//! store saves the computed state if the stored one has not changed. An account that does not exist has the same states as one
//! that does.

use chrono::{DateTime, TimeDelta, Utc};

/// Consecutive failures from all sources that lock an account.
pub(crate) const LOCKOUT_THRESHOLD: i32 = 100;
/// Maximum number of attempts in flight per account, source and purpose.
const MAX_IN_FLIGHT: usize = 8;
/// How long an attempt counts as in flight. After that its process has stopped, or the client has disconnected.
const ATTEMPT_TIMEOUT: TimeDelta = TimeDelta::seconds(30);
/// How long after a successful login the lockout does not apply to its source.
pub(crate) const TRUSTED_SOURCE_WINDOW: TimeDelta = TimeDelta::days(30);
/// How long failures count towards the back-off, from the first of them.
const FAILURE_WINDOW: TimeDelta = TimeDelta::hours(24);

/// The back-off after the given number of failures at one account from one source within a day.
fn back_off(failures: i32) -> TimeDelta {
    TimeDelta::seconds(match failures {
        ..=4 => 0,
        5..=10 => 1 << (failures - 5),
        11..=49 => 60,
        50.. => 15 * 60,
    })
}

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    LogIn,
    /// The second step of a login, after the right password. It counts as a login in flight.
    SecondFactor,
    /// A login with a passkey alone, after its signature was verified. It counts as a login in flight.
    Passkey,
    ChangePassword,
}

impl Purpose {
    /// Returns whether the attempt needs a hash.
    pub(crate) fn verifies_password(self) -> bool {
        matches!(self, Self::LogIn | Self::ChangePassword)
    }
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The password is correct, and nothing else objects.
    Success,
    /// The password is correct, but something else objects. The attempt does not count.
    Objection,
    /// The password is wrong, or the account cannot log in.
    Failure,
    /// The user has authenticated without the password, but cannot log in now. Recorded as a failed login. It does not count: no secret can
    /// be guessed with it.
    Rejected,
    /// The password was not verified. The attempt does not count.
    Unverified,
}

/// The state of an account and a source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Throttle {
    /// Attempts from this source.
    pub(crate) source: SourceAttempts,
    /// Consecutive failures from all sources.
    pub(crate) consecutive_failures: i32,
}

/// Attempts at one account from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceAttempts {
    /// Failures since the window began.
    pub(crate) failures: i32,
    pub(crate) back_off_until: DateTime<Utc>,
    pub(crate) window_ends_at: DateTime<Utc>,
    /// Start times of the logins in flight.
    pub(crate) in_flight: Vec<DateTime<Utc>>,
    /// Start times of the password changes in flight. They have a separate limit: a request names the user id at a change and
    /// the e-mail address at a login, and a common limit would reveal which of them belong together.
    pub(crate) changes_in_flight: Vec<DateTime<Utc>>,
    pub(crate) last_success_at: Option<DateTime<Utc>>,
}

/// An admitted attempt. [`Throttle::settle`] ends it.
#[derive(Debug)]
pub(crate) struct Permit {
    purpose: Purpose,
    started_at: DateTime<Utc>,
    /// Whether a failure counts: the attempt started outside a back-off.
    counts: bool,
    /// Whether the lockout does not apply: a recent login succeeded from the same source.
    trusted: bool,
    /// Whether the correct password is accepted.
    allowed: bool,
}

impl Permit {
    /// Returns whether the correct password is accepted: there is neither a back-off nor a lockout.
    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Whether the attempt has a place in the reserved lane of the hash queue: a recent login to the account succeeded from the
    /// same source, and the attempt can succeed now.
    pub(crate) fn uses_reserved_lane(&self) -> bool {
        self.trusted && self.allowed
    }
}

impl SourceAttempts {
    /// The state of a source without attempts.
    pub(crate) fn new(now: DateTime<Utc>) -> Self {
        Self {
            failures: 0,
            back_off_until: now,
            window_ends_at: now + FAILURE_WINDOW,
            in_flight: Vec::new(),
            changes_in_flight: Vec::new(),
            last_success_at: None,
        }
    }

    fn in_flight(&mut self, purpose: Purpose) -> &mut Vec<DateTime<Utc>> {
        match purpose {
            Purpose::LogIn | Purpose::SecondFactor | Purpose::Passkey => &mut self.in_flight,
            Purpose::ChangePassword => &mut self.changes_in_flight,
        }
    }

    fn end(&mut self, permit: &Permit) {
        let in_flight = self.in_flight(permit.purpose);
        if let Some(index) = in_flight.iter().position(|started_at| *started_at == permit.started_at) {
            in_flight.remove(index);
        }
    }
}

impl Throttle {
    /// Admits an attempt; `None` if too many are in flight.
    pub(crate) fn admit(&mut self, purpose: Purpose, now: DateTime<Utc>) -> Option<Permit> {
        let locked = self.is_locked();
        let source = &mut self.source;
        if source.window_ends_at <= now {
            source.failures = 0;
            source.back_off_until = now;
            source.window_ends_at = now + FAILURE_WINDOW;
        }
        // Later times come from a replica with a clock that was ahead.
        source.window_ends_at = source.window_ends_at.min(now + FAILURE_WINDOW);
        source.back_off_until = source.back_off_until.min(now + back_off(source.failures));
        let in_flight = source.in_flight(purpose);
        in_flight.retain(|started_at| (*started_at - now).abs() < ATTEMPT_TIMEOUT);
        if in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        in_flight.push(now);
        // The replica of the last attempt can have a clock that is ahead: only failures cause a back-off.
        let counts = back_off(source.failures).is_zero() || source.back_off_until <= now;
        let trusted = source.last_success_at.is_some_and(|at| at > now - TRUSTED_SOURCE_WINDOW);
        Some(Permit { purpose, started_at: now, counts, trusted, allowed: counts && (trusted || !locked) })
    }

    /// Returns whether the account is locked.
    pub(crate) fn is_locked(&self) -> bool {
        self.consecutive_failures >= LOCKOUT_THRESHOLD
    }

    /// Settles an attempt. Returns the outcome that counts: a correct password is a failure if the account was locked while the
    /// attempt was in flight, so that at most [`LOCKOUT_THRESHOLD`] guesses are verified, however many are in flight.
    pub(crate) fn settle(&mut self, permit: &Permit, outcome: Outcome, now: DateTime<Utc>) -> Outcome {
        let is_correct = matches!(outcome, Outcome::Success | Outcome::Objection);
        let outcome =
            if is_correct && self.is_locked() && !permit.trusted { Outcome::Failure } else { outcome };
        self.source.end(permit);
        match outcome {
            Outcome::Success => self.succeed(now),
            Outcome::Failure if permit.counts => self.fail(now),
            Outcome::Failure | Outcome::Objection | Outcome::Rejected | Outcome::Unverified => {}
        }
        outcome
    }

    /// Counts a failure. The one that brings the consecutive failures to [`LOCKOUT_THRESHOLD`] locks the account.
    fn fail(&mut self, now: DateTime<Utc>) {
        let source = &mut self.source;
        if source.failures == 0 {
            source.window_ends_at = now + FAILURE_WINDOW;
        }
        source.failures = source.failures.saturating_add(1);
        source.back_off_until = source.back_off_until.max(now + back_off(source.failures));
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
    }

    /// Forgets the failures of the source and ends its back-off. The consecutive failures are reset, unless the account is locked.
    fn succeed(&mut self, now: DateTime<Utc>) {
        self.source.failures = 0;
        self.source.back_off_until = now;
        self.source.last_success_at = Some(now);
        if !self.is_locked() {
            self.consecutive_failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn throttle(consecutive_failures: i32) -> Throttle {
        Throttle { source: SourceAttempts::new(START), consecutive_failures }
    }

    #[test]
    fn the_back_off_doubles_up_to_a_minute_and_ends_at_fifteen_minutes() {
        let seconds: Vec<_> = (0..=51).map(|failures| back_off(failures).num_seconds()).collect();
        assert_eq!(seconds[..13], [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(seconds[49..], [60, 900, 900]);
        assert!(seconds.is_sorted());
    }

    #[test]
    fn attempts_through_a_replica_with_a_clock_ahead_cause_no_back_off_here() {
        let ahead = START + TimeDelta::minutes(5);
        let mut throttle = throttle(0);
        let permit = throttle.admit(Purpose::LogIn, ahead).unwrap();
        throttle.settle(&permit, Outcome::Success, ahead);
        assert!(throttle.admit(Purpose::LogIn, START).unwrap().is_allowed());
        for (failures, allowed) in [(1..=4, true), (5..=5, false)] {
            for _ in failures {
                let permit = throttle.admit(Purpose::LogIn, ahead).unwrap();
                throttle.settle(&permit, Outcome::Failure, ahead);
            }
            assert_eq!(throttle.admit(Purpose::LogIn, START).unwrap().is_allowed(), allowed);
        }
    }

    #[test]
    fn a_replica_with_a_clock_that_is_an_hour_ahead_blocks_for_no_longer_than_the_back_off() {
        let (hour, ahead) = (TimeDelta::hours(1), START + TimeDelta::hours(1));
        for failures in [5, 11, 50] {
            let mut throttle = throttle(0);
            throttle.source.failures = failures - 1;
            let permit = throttle.admit(Purpose::LogIn, ahead).unwrap();
            throttle.settle(&permit, Outcome::Failure, ahead);
            for _ in 0..MAX_IN_FLIGHT {
                throttle.admit(Purpose::LogIn, ahead).unwrap();
            }
            assert!(!throttle.admit(Purpose::LogIn, START).unwrap().is_allowed(), "{failures}");
            let later = START + back_off(failures);
            assert!(throttle.admit(Purpose::LogIn, later).unwrap().is_allowed(), "{failures}");
            assert!(throttle.source.window_ends_at <= START + hour + FAILURE_WINDOW);
        }
    }

    #[test]
    fn an_attempt_without_a_result_counts_for_thirty_seconds() {
        let mut throttle = throttle(0);
        for _ in 0..MAX_IN_FLIGHT {
            assert!(throttle.admit(Purpose::LogIn, START).is_some());
        }
        let end = START + ATTEMPT_TIMEOUT;
        assert!(throttle.admit(Purpose::LogIn, end - TimeDelta::microseconds(1)).is_none());
        assert!(throttle.admit(Purpose::LogIn, end).is_some());
    }

    #[test]
    fn the_window_of_failures_begins_with_the_first_one() {
        let mut throttle = throttle(0);
        let mut end_after_failure_at = |now| {
            let permit = throttle.admit(Purpose::LogIn, now).unwrap();
            let end_at_admission = throttle.source.window_ends_at;
            throttle.settle(&permit, Outcome::Failure, now);
            (end_at_admission, throttle.source.window_ends_at)
        };
        let (first, hour) = (START + FAILURE_WINDOW * 2, TimeDelta::hours(1));
        let end = first + FAILURE_WINDOW;
        assert_eq!(end_after_failure_at(first), (end, end));
        assert_eq!(end_after_failure_at(first + hour), (end, end));
        assert_eq!(
            end_after_failure_at(end + hour),
            (end + hour + FAILURE_WINDOW, end + hour + FAILURE_WINDOW)
        );
    }

    #[test]
    fn the_failure_at_the_threshold_locks_the_account() {
        let mut throttle = throttle(LOCKOUT_THRESHOLD - 1);
        let first = throttle.admit(Purpose::LogIn, START).unwrap();
        let second = throttle.admit(Purpose::LogIn, START).unwrap();
        throttle.settle(&first, Outcome::Failure, START);
        assert_eq!(throttle.consecutive_failures, LOCKOUT_THRESHOLD);
        throttle.settle(&second, Outcome::Failure, START);
        assert!(!throttle.admit(Purpose::LogIn, START).unwrap().is_allowed());
    }

    #[test]
    fn logins_and_password_changes_in_flight_have_separate_limits() {
        let mut throttle = throttle(0);
        for _ in 0..MAX_IN_FLIGHT {
            throttle.admit(Purpose::ChangePassword, START).unwrap();
        }
        assert!(throttle.admit(Purpose::ChangePassword, START).is_none());
        let login = throttle.admit(Purpose::LogIn, START).unwrap();
        throttle.settle(&login, Outcome::Unverified, START);
        assert!(throttle.admit(Purpose::ChangePassword, START).is_none(), "a login does not settle a change");
    }

    #[test]
    fn a_lockout_rejects_attempts_in_flight_except_from_a_trusted_source() {
        for trusted in [false, true] {
            let mut throttle = throttle(0);
            throttle.source.last_success_at = trusted.then_some(START);
            let permit = throttle.admit(Purpose::LogIn, START).unwrap();
            throttle.consecutive_failures = LOCKOUT_THRESHOLD;
            for outcome in [Outcome::Success, Outcome::Objection] {
                let (mut throttle, counted) =
                    (throttle.clone(), if trusted { outcome } else { Outcome::Failure });
                assert_eq!(throttle.settle(&permit, outcome, START), counted);
                assert!(throttle.is_locked(), "a success does not end a lockout");
            }
        }
    }

    #[test]
    fn the_trust_in_a_source_ends() {
        let mut throttle = throttle(LOCKOUT_THRESHOLD);
        throttle.source.last_success_at = Some(START);
        let last = START + TRUSTED_SOURCE_WINDOW - TimeDelta::microseconds(1);
        assert!(throttle.clone().admit(Purpose::LogIn, last).unwrap().is_allowed());
        assert!(!throttle.admit(Purpose::LogIn, START + TRUSTED_SOURCE_WINDOW).unwrap().is_allowed());
    }

    #[test]
    fn only_an_attempt_that_can_succeed_from_a_trusted_source_uses_the_reserved_lane() {
        let mut throttle = throttle(LOCKOUT_THRESHOLD);
        assert!(!throttle.admit(Purpose::LogIn, START).unwrap().uses_reserved_lane());
        throttle.source.last_success_at = Some(START);
        assert!(throttle.admit(Purpose::LogIn, START).unwrap().uses_reserved_lane());
        throttle.source.failures = LOCKOUT_THRESHOLD;
        throttle.source.back_off_until = START + TimeDelta::seconds(1);
        assert!(!throttle.admit(Purpose::LogIn, START).unwrap().uses_reserved_lane());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Admit,
        Settle(Outcome),
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
        let step = prop_oneof![
            4 => Just(Step::Admit),
            3 => Just(Step::Settle(Outcome::Failure)),
            1 => Just(Step::Settle(Outcome::Success)),
            1 => Just(Step::Settle(Outcome::Objection)),
            1 => Just(Step::Settle(Outcome::Rejected)),
            1 => Just(Step::Settle(Outcome::Unverified)),
        ];
        let seconds = prop_oneof![4 => Just(0_i64), 4 => 0_i64..90, 1 => 0_i64..100_000];
        prop::collection::vec((step, seconds), 1..300)
    }

    proptest! {
        #[test]
        fn attempts_never_exceed_their_limits(steps in steps(), consecutive in 0_i32..LOCKOUT_THRESHOLD + 2) {
            let (mut throttle, mut now, mut open) = (throttle(consecutive), START, Vec::new());
            for (step, seconds) in steps {
                now += TimeDelta::seconds(seconds);
                let before = throttle.clone();
                match step {
                    Step::Admit => {
                        let back_off = before.source.back_off_until.min(before.source.window_ends_at) > now;
                        if let Some(permit) = throttle.admit(Purpose::LogIn, now) {
                            let locked = before.consecutive_failures >= LOCKOUT_THRESHOLD;
                            prop_assert_eq!(permit.counts, !back_off);
                            prop_assert_eq!(permit.allowed, !back_off && (!locked || permit.trusted));
                            open.push(permit);
                        } else {
                            prop_assert_eq!(throttle.source.in_flight.len(), MAX_IN_FLIGHT);
                        }
                    }
                    Step::Settle(outcome) => {
                        let Some(permit) = open.pop() else { continue };
                        let is_accepted = permit.trusted || before.consecutive_failures < LOCKOUT_THRESHOLD;
                        let is_correct = matches!(outcome, Outcome::Success | Outcome::Objection);
                        let expected = if is_correct && !is_accepted { Outcome::Failure } else { outcome };
                        prop_assert_eq!(throttle.settle(&permit, outcome, now), expected);
                        let source = &throttle.source;
                        prop_assert!(!source.in_flight.contains(&permit.started_at) || open.iter().any(|it| it.started_at == permit.started_at));
                        match expected {
                            Outcome::Success => {
                                prop_assert_eq!((source.failures, source.back_off_until), (0, now));
                                prop_assert_eq!(source.last_success_at, Some(now));
                            }
                            Outcome::Failure => {
                                let counted = i32::from(permit.counts);
                                prop_assert_eq!(source.failures, before.source.failures + counted);
                                let consecutive = before.consecutive_failures + counted;
                                prop_assert_eq!(throttle.consecutive_failures, consecutive);
                                let end = if permit.counts { now + back_off(source.failures) } else { START };
                                prop_assert_eq!(source.back_off_until, before.source.back_off_until.max(end));
                                prop_assert_eq!(source.last_success_at, before.source.last_success_at);
                            }
                            Outcome::Objection | Outcome::Rejected | Outcome::Unverified => {
                                let in_flight = source.in_flight.clone();
                                let source = SourceAttempts { in_flight, ..before.source };
                                prop_assert_eq!(&throttle, &Throttle { source, ..before });
                            }
                        }
                    }
                }
                prop_assert!(throttle.source.in_flight.len() <= MAX_IN_FLIGHT);
            }
        }

        #[test]
        fn after_a_success_four_failures_cause_no_back_off(failures in 0_i32..60, seconds in 0_i64..80_000) {
            let mut throttle = throttle(0);
            let now = START + TimeDelta::seconds(seconds);
            // The attempt started before the back-off.
            let permit = throttle.admit(Purpose::LogIn, START).unwrap();
            throttle.source.failures = failures;
            throttle.source.back_off_until = now + back_off(failures);
            prop_assert_eq!(throttle.settle(&permit, Outcome::Success, now), Outcome::Success);
            for _ in 0..4 {
                let permit = throttle.admit(Purpose::LogIn, now).unwrap();
                prop_assert!(permit.is_allowed());
                throttle.settle(&permit, Outcome::Failure, now);
            }
            prop_assert!(throttle.admit(Purpose::LogIn, now).unwrap().is_allowed());
        }

        #[test]
        fn an_attempt_that_does_not_count_changes_nothing(
            failures in 0_i32..60,
            seconds in 0_i64..80_000,
            outcome in prop_oneof![Just(Outcome::Objection), Just(Outcome::Rejected), Just(Outcome::Unverified)],
        ) {
            let mut throttle = throttle(failures);
            throttle.source.failures = failures;
            let (before, now) = (throttle.clone(), START + TimeDelta::seconds(seconds));
            let permit = throttle.admit(Purpose::LogIn, now).unwrap();
            throttle.settle(&permit, outcome, now);
            prop_assert_eq!(throttle, before);
        }
    }
}
