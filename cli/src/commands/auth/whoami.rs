//! `svc auth whoami`

use clap::Args;
use contract::Scope;
use contract::session::{SessionMethod, SubjectType, Whoami};
use reqwest::Method;

use crate::catalog::{Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::output::{Report, Table, time};

/// Ask the service who the credential is, and what it may do now.
#[derive(Args)]
pub(crate) struct WhoamiCommand {}

impl Report for Whoami {
    fn table(&self) -> Table {
        let scopes: Vec<_> = self.scopes.iter().copied().map(Scope::as_str).collect();
        Table::of_fields([
            ("tenant", Some(self.tenant_id.to_string())),
            ("subject", Some(subject(self.subject_type).to_owned())),
            ("user", self.user_id.map(|id| id.to_string())),
            ("key", self.key_id.map(|id| id.to_string())),
            ("role", self.role.map(|role| role.to_string())),
            ("scopes", Some(scopes.join(" "))),
            ("method", self.method.map(|method| login_method(method).to_owned())),
            ("ends", Some(time(&self.expires_at))),
            ("ends unused", self.idle_expires_at.as_ref().map(time)),
        ])
    }
}

impl Command for WhoamiCommand {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Caller,
            examples: &[
                ("See who later commands act as", "svc auth whoami"),
                ("The same for a script", "svc auth whoami --output json"),
            ],
            agent_notes: "Exit status 4 means that a new login is needed. It is the cheapest way to find out whether a \
                          credential still works.",
            see_also: &["auth status", "auth login"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Whoami>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let caller = context.caller()?;
        let api = context.api()?;
        let call = api.call(Method::GET, "/auth/session").bearer(&caller.bearer)?;
        let whoami: Whoami = call.tenant(caller.tenant.as_ref()).fetch().await?;
        context.out().print(&whoami)
    }
}

fn subject(subject: SubjectType) -> &'static str {
    match subject {
        SubjectType::User => "user",
        SubjectType::ApiKey => "API key",
    }
}

/// How a session came to be, in a word.
fn login_method(method: SessionMethod) -> &'static str {
    match method {
        SessionMethod::Password => "password",
        SessionMethod::Device => "device",
    }
}
