//! `svc auth device deny`

use clap::Args;
use contract::ProblemKind;
use contract::device::Decision;

use super::Decided;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Deny a device that shows a code: it gets nothing, and is told so.
///
/// Shows what asks, and asks before it acts.
#[derive(Args)]
pub(crate) struct Deny {
    /// Code that the device shows; case and hyphen do not matter.
    #[arg(value_name = "USER_CODE")]
    user_code: String,
}

impl Command for Deny {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[("Deny what somebody else has started", "svc auth device deny BCDF-GHJK")],
            agent_notes: "Needs --yes where nobody can be asked. A code that nobody decides about expires by itself after ten \
                          minutes. After ten wrong codes within an hour, none is looked up for the rest of it.",
            see_also: &["auth device approve", "auth sessions list"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::Declined),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::Forbidden),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Decided>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        super::decide(context, self.user_code, Decision::Deny).await
    }
}
