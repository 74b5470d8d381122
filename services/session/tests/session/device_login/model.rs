//! Model test: random sequences of polls, waits and decisions, compared with a small model.

use chrono::TimeDelta;
use contract::device::{Decision, DeviceError};
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::context::{Context, subject, tenant};
use crate::device_login::{decide, inspect, poll, start};

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(i64),
    Poll,
    Inspect,
    Decide(Decision),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop_oneof![0_i64..7, 0_i64..40, 200_i64..400].prop_map(Step::Wait),
        4 => Just(Step::Poll),
        1 => Just(Step::Inspect),
        1 => prop_oneof![Just(Decision::Approve), Just(Decision::Deny)].prop_map(Step::Decide),
    ];
    prop::collection::vec(step, 1..16)
}

/// One grant under RFC 8628 and the limits of this service. Times are in seconds since the grant started.
struct Model {
    now: i64,
    polled: Option<i64>,
    polled_early: bool,
    polled_twice: bool,
    interval: i64,
    decided: Option<Decision>,
    redeemed: bool,
}

impl Model {
    fn is_pending(&self) -> bool {
        self.decided.is_none() && self.now < 600
    }

    fn poll(&mut self) -> Result<(), DeviceError> {
        // The second poll within a second gets the response of the first one.
        let repeated = self.polled == Some(self.now) && !self.polled_twice;
        let early = if repeated {
            self.polled_early
        } else {
            self.polled.is_some_and(|polled| self.now < polled + self.interval)
        };
        (self.polled, self.polled_early, self.polled_twice) = (Some(self.now), early, repeated);
        self.interval += if early && !repeated { 5 } else { 0 };
        match self.decided {
            Some(Decision::Deny) => Err(DeviceError::AccessDenied),
            _ if self.redeemed => Err(DeviceError::InvalidGrant),
            _ if self.now >= 600 => Err(DeviceError::ExpiredToken),
            Some(Decision::Approve) => {
                self.redeemed = true;
                Ok(())
            }
            None if early => Err(DeviceError::SlowDown),
            None => Err(DeviceError::AuthorizationPending),
        }
    }

    fn decide(&mut self, decision: Decision) -> StatusCode {
        if !self.is_pending() {
            return StatusCode::NOT_FOUND;
        }
        self.decided = Some(decision);
        StatusCode::NO_CONTENT
    }
}

async fn compare_with_model(context: &Context, steps: &[Step]) -> Result<(), TestCaseError> {
    let codes = start(context).await;
    let mut model = Model {
        now: 0,
        polled: None,
        polled_early: false,
        polled_twice: false,
        interval: 5,
        decided: None,
        redeemed: false,
    };
    for step in steps {
        // A new user for each step, so that none reaches the limit of wrong codes.
        let user = context.issue(&subject(), &tenant()).await.unwrap();
        match *step {
            Step::Wait(seconds) => {
                context.clock.advance(TimeDelta::seconds(seconds));
                model.now += seconds;
            }
            Step::Poll => prop_assert_eq!(poll(context, &codes).await.map(drop), model.poll()),
            Step::Inspect => {
                prop_assert_eq!(inspect(context, &user, &codes.user_code).await.is_ok(), model.is_pending());
            }
            Step::Decide(decision) => {
                let (status, _) = decide(context, &user, &codes.user_code, decision).await;
                prop_assert_eq!(status, model.decide(decision));
            }
        }
    }
    Ok(())
}

#[test]
fn random_sequences_match_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let context = runtime.block_on(Context::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    runner.run(&steps(), |steps| runtime.block_on(compare_with_model(&context, &steps))).unwrap();
}
