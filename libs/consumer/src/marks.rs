//! The number of deliveries of an event, which records the crashes during its handling.
//!
//! When a process has ended, only the broker has state about it: the number of deliveries of each event. Before its first attempt,
//! the event is returned to the server and received again until the number is 16 · k, where k is the number of crashes including
//! this attempt. If the process ends, the next delivery has the number 16 · k + 1. After an attempt that failed or was abandoned,
//! one more delivery removes the mark.
//!
//! Each restart also increases the number of an event that only waits. Such an event is delivered past the next mark before it is
//! near it ([`unmarked`]).

/// Number of crashes during the handling of an event until it becomes a dead letter.
pub(crate) const MAX_CRASHES: u64 = 5;
/// Distance of two marks.
const STEP: u64 = 16;
/// Distance to a mark at which an event is delivered past it. Several crashes during this would have to follow each other.
const NEAR: u64 = 4;
const CYCLE: u64 = STEP * (MAX_CRASHES + 1);

/// Number of crashes that a delivery with this number shows.
pub(crate) fn crashes(number: u64) -> u64 {
    let number = number % CYCLE;
    if number % STEP == 1 { number / STEP } else { 0 }
}

/// Returns the next number of deliveries that marks an attempt after this number of crashes.
pub(crate) fn marked(number: u64, crashes: u64) -> u64 {
    let mark = STEP * (crashes + 1);
    number + 1 + (mark + CYCLE - (number + 1) % CYCLE) % CYCLE
}

/// Returns the number of deliveries that an event with this number must have before it waits: near a mark, a number after it.
pub(crate) fn unmarked(number: u64) -> u64 {
    let before_mark = (STEP - number % STEP) % STEP;
    if before_mark < NEAR { number + before_mark + 2 } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_of_a_marked_attempt_adds_one_and_nothing_else_does() {
        for first in 1..200 {
            // The number after a crash of another event.
            let mut number = first;
            for expected in 1..=MAX_CRASHES {
                let before = marked(number, expected - 1);
                assert!(before > number && before <= number + CYCLE, "{number}");
                // Returned: the next delivery shows no crash.
                assert_eq!(crashes(before + 1 + 1), 0, "{before}");
                number = before + 1;
                assert_eq!(crashes(number), expected, "{number}");
            }
        }
        assert_eq!((0..=STEP).map(crashes).max(), Some(0));
    }

    #[test]
    fn deliveries_without_an_attempt_show_no_crash() {
        for lost in 0..NEAR {
            let mut number = 1;
            for restart in 0..1000 {
                assert_eq!(crashes(number), 0, "{number}");
                // Some processes end before they deliver it past the mark.
                number = if restart % NEAR < lost { number } else { unmarked(number) } + 1;
            }
        }
    }

    #[test]
    fn an_event_that_was_marked_is_not_near_the_next_mark() {
        for crashes_before in 0..MAX_CRASHES {
            let number = marked(1, crashes_before) + 1;
            assert_eq!(unmarked(number), number);
        }
    }

    #[test]
    fn without_dead_letters_the_count_starts_again() {
        let number = marked(STEP * MAX_CRASHES + 1, MAX_CRASHES);
        assert_eq!(crashes(number + 1), 0);
    }

    #[test]
    fn an_interrupted_mark_shows_at_most_the_earlier_crashes() {
        for crashes_before in 0..MAX_CRASHES {
            let first = STEP * crashes_before + 1;
            for number in first..marked(first, crashes_before) {
                assert!(crashes(number) <= crashes_before, "{number}");
            }
        }
    }
}
