//! `svc auth device approve`

use clap::Args;
use contract::ProblemKind;
use contract::device::Decision;

use super::Decided;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};

/// Let a device in that shows a code: it gets a session of yours.
///
/// Shows what asks, and asks before it acts. Approve nothing that you have not started yourself: whoever sent you the code
/// would act as you. Needs a login with your password at most ten minutes ago.
#[derive(Args)]
pub(crate) struct Approve {
    /// Code that the device shows; case and hyphen do not matter.
    #[arg(value_name = "USER_CODE")]
    user_code: String,
}

impl Command for Approve {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[
                ("See what asks, and be asked first", "svc auth device approve BCDF-GHJK"),
                ("The same from a script", "svc auth device approve BCDF-GHJK --yes"),
            ],
            agent_notes: "Gives another machine the full rights of the person you work for: never approve a code that they \
                          did not just read off a device of theirs, and pass --yes only when they said so. Exit status 4 \
                          with reauthentication_required when the login is older than ten minutes or was itself made with a \
                          device code. After ten wrong codes within an hour, none is looked up for the rest of it.",
            see_also: &["auth device deny", "auth login", "auth sessions list"],
            errors: &[
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Local(Fault::Declined),
                Failure::Api(ProblemKind::NotFound),
                Failure::Api(ProblemKind::Forbidden),
                Failure::Api(ProblemKind::ReauthenticationRequired),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<Decided>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        super::decide(context, self.user_code, Decision::Approve).await
    }
}
