//! When a device asks whether it was let in (RFC 8628, section 3.5): never before the interval is over, five seconds later
//! each time it is told to slow down, and half as often each time the service cannot be reached.

use std::time::Duration;

use contract::device::DeviceError;
use tokio::time::{Instant, sleep_until};

use crate::error::{CliError, Exit, Fault, Result};

/// What is added to the interval for good.
const SLOWER: Duration = Duration::from_secs(5);
/// A service that asks for no interval at all is not asked without pause.
const SHORTEST: Duration = Duration::from_secs(1);

/// What came of asking.
pub(super) enum Asked<T> {
    /// The device was let in.
    LetIn(T),
    /// It was not, or not yet.
    Refused(DeviceError),
}

/// Asks until there is an answer, or the codes are too old.
pub(super) async fn until_decided<T>(
    interval: Duration,
    lifetime: Duration,
    ask: impl AsyncFn() -> Result<Asked<T>>,
) -> Result<T> {
    let end = Instant::now() + lifetime;
    let mut interval = interval.max(SHORTEST);
    loop {
        let next = Instant::now() + interval;
        sleep_until(next.min(end)).await;
        if next >= end {
            return Err(Fault::DevicePending.bare());
        }
        match ask().await {
            Ok(Asked::LetIn(session)) => return Ok(session),
            Ok(Asked::Refused(DeviceError::AuthorizationPending)) => {}
            Ok(Asked::Refused(DeviceError::SlowDown)) => interval += SLOWER,
            Ok(Asked::Refused(error)) => return Err(refusal(error)),
            Err(error) if error.exit == Exit::Unavailable => interval *= 2,
            Err(error) => return Err(error),
        }
    }
}

fn refusal(error: DeviceError) -> CliError {
    match error {
        DeviceError::ExpiredToken => Fault::DevicePending.bare(),
        error => Fault::DeviceRefused.because(error.description()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Asks a service that answers this, one after the other; tells what came of it, and the seconds at which it was asked.
    async fn asking(answers: Vec<Result<Asked<()>>>, lifetime: u64) -> (Result<()>, Vec<u64>) {
        let start = Instant::now();
        let (answers, asked) = (RefCell::new(answers.into_iter()), RefCell::new(Vec::new()));
        let ask = async || {
            asked.borrow_mut().push(start.elapsed().as_secs());
            answers.borrow_mut().next().unwrap_or(Ok(Asked::Refused(DeviceError::AuthorizationPending)))
        };
        let outcome = until_decided(Duration::from_secs(5), Duration::from_secs(lifetime), ask).await;
        (outcome, asked.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn rfc_8628_section_3_5_the_interval_is_waited_for_and_grows_for_good() {
        let answers = vec![
            Ok(Asked::Refused(DeviceError::AuthorizationPending)),
            Ok(Asked::Refused(DeviceError::SlowDown)),
            Ok(Asked::Refused(DeviceError::AuthorizationPending)),
            Ok(Asked::Refused(DeviceError::SlowDown)),
            Ok(Asked::LetIn(())),
        ];
        let (outcome, asked) = asking(answers, 600).await;
        assert_eq!((outcome.is_ok(), asked), (true, vec![5, 10, 20, 30, 45]));
    }

    #[tokio::test(start_paused = true)]
    async fn rfc_8628_section_3_5_a_service_that_is_not_there_is_asked_half_as_often() {
        let answers = vec![Err(Fault::TimedOut.bare()), Err(Fault::Unreachable.bare()), Ok(Asked::LetIn(()))];
        let (outcome, asked) = asking(answers, 600).await;
        assert_eq!((outcome.is_ok(), asked), (true, vec![5, 15, 35]));
    }

    #[tokio::test(start_paused = true)]
    async fn rfc_8628_section_3_5_any_other_error_is_the_end() {
        for (error, code) in [
            (DeviceError::AccessDenied, "device_refused"),
            (DeviceError::InvalidGrant, "device_refused"),
            (DeviceError::InvalidRequest, "device_refused"),
            (DeviceError::ExpiredToken, "device_pending"),
        ] {
            let (outcome, asked) = asking(vec![Ok(Asked::Refused(error))], 600).await;
            assert_eq!((outcome.unwrap_err().code.as_str(), asked.len()), (code, 1));
        }
        let (outcome, asked) = asking(vec![Err(Fault::UnexpectedAnswer.bare())], 600).await;
        assert_eq!((outcome.unwrap_err().code.as_str(), asked.len()), ("unexpected_answer", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn codes_that_are_too_old_are_not_asked_about() {
        let start = Instant::now();
        let (outcome, asked) = asking(Vec::new(), 12).await;
        let error = outcome.unwrap_err();
        assert_eq!((error.code.as_str(), error.exit.code()), ("device_pending", 8));
        assert_eq!((asked, start.elapsed().as_secs()), (vec![5, 10], 12));
    }
}
