//! `svc api-keys list`

use clap::Args;
use contract::ProblemKind;
use contract::api_key::ApiKey;

use crate::arguments::Paging;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::Listed;

/// List the API keys of the tenant that still work, oldest first.
///
/// Needs an administrator's session.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Session,
            examples: &[("See which keys there are and when each was last used", "svc api-keys list --all")],
            agent_notes: "Without --all or --limit it prints one page, and a warning on standard error when there are more. \
                          The keys themselves are not listed: nobody can see them again. The last use is known to the \
                          minute.",
            see_also: &["api-keys create", "api-keys revoke"],
            errors: &[Failure::Local(Fault::InputInvalid), Failure::Api(ProblemKind::Forbidden)],
            input_schema: None,
            output_schema: Some(schema_of::<Listed<ApiKey>>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let (caller, api) = (context.session()?, context.api()?);
        let part = api.list_part("/api-keys", &[], self.paging.into(), |call| {
            Ok(call.bearer(&caller.bearer)?.tenant(caller.tenant.as_ref()))
        });
        context.print_part::<ApiKey>(part.await?)
    }
}
