//! Any order of asking, waiting and deciding, against a model that knows nothing of how grants are kept.

use chrono::TimeDelta;
use contract::device::{Decision, DeviceError};
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::context::{Context, subject, tenant};
use crate::device::{decide, inspect, poll, start};

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

/// What RFC 8628 and our own limits say of one grant, in seconds since it began.
struct Model {
    now: i64,
    polled: Option<i64>,
    interval: i64,
    decided: Option<Decision>,
    redeemed: bool,
}

impl Model {
    fn is_pending(&self) -> bool {
        self.decided.is_none() && self.now < 600
    }

    fn poll(&mut self) -> Result<(), DeviceError> {
        let early = self.polled.is_some_and(|polled| self.now < polled + self.interval);
        self.polled = Some(self.now);
        self.interval += if early { 5 } else { 0 };
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

async fn follows_the_model(context: &Context, steps: &[Step]) -> Result<(), TestCaseError> {
    let codes = start(context).await;
    let mut model = Model { now: 0, polled: None, interval: 5, decided: None, redeemed: false };
    for step in steps {
        // Everybody is somebody else, so that nobody runs into the limit of wrong codes.
        let person = context.issue(&subject(), &tenant()).await.unwrap();
        match *step {
            Step::Wait(seconds) => {
                context.clock.advance(TimeDelta::seconds(seconds));
                model.now += seconds;
            }
            Step::Poll => prop_assert_eq!(poll(context, &codes).await.map(drop), model.poll()),
            Step::Inspect => {
                prop_assert_eq!(
                    inspect(context, &person, &codes.user_code).await.is_ok(),
                    model.is_pending()
                );
            }
            Step::Decide(decision) => {
                let (status, _) = decide(context, &person, &codes.user_code, decision).await;
                prop_assert_eq!(status, model.decide(decision));
            }
        }
    }
    Ok(())
}

#[test]
fn any_order_of_events_ends_as_the_model_says() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let context = runtime.block_on(Context::start());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    runner.run(&steps(), |steps| runtime.block_on(follows_the_model(&context, &steps))).unwrap();
}
