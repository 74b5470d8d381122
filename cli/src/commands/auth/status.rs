//! `svc auth status`

use chrono::{DateTime, Utc};
use clap::Args;
use contract::Role;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{TenantId, UserId};

use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::{Context, stored};
use crate::environment::{self, API_KEY, TOKEN};
use crate::error::{Fault, Result};
use crate::output::{Listed, Row, time};

/// List the credentials at hand, without asking any service.
///
/// Whether a credential still works is what `svc auth whoami` asks.
#[derive(Args)]
pub(crate) struct Status {}

/// A credential at hand.
#[derive(Serialize, JsonSchema)]
struct AtHand {
    /// `stored`, or the environment variable that holds it.
    source: &'static str,
    /// Whether the next command would act with it.
    current: bool,
    /// The service that it was stored for.
    base_url: Option<String>,
    /// The tenant that it was stored for.
    tenant_id: Option<TenantId>,
    /// Whose session it is.
    user_id: Option<UserId>,
    /// The address that logged in.
    email: Option<String>,
    /// What the user might do at the time of the login.
    role: Option<Role>,
    /// When it ends at the latest.
    expires_at: Option<DateTime<Utc>>,
}

impl Row for AtHand {
    const HEADING: &'static [&'static str] =
        &["CURRENT", "SOURCE", "SERVICE", "TENANT", "EMAIL", "ROLE", "ENDS"];
    const NONE: &'static str = "No credential.";

    fn cells(&self) -> Vec<String> {
        vec![
            if self.current { "*" } else { "" }.to_owned(),
            self.source.to_owned(),
            self.base_url.clone().unwrap_or_default(),
            self.tenant_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            self.email.clone().unwrap_or_default(),
            self.role.map(|role| role.to_string()).unwrap_or_default(),
            self.expires_at.as_ref().map(time).unwrap_or_default(),
        ]
    }
}

impl Command for Status {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Stored,
            examples: &[("See what is stored, and what is current", "svc auth status")],
            agent_notes: "Works offline and says nothing of whether the service still takes a credential. Exit status 4 \
                          when there is none at all.",
            see_also: &["auth whoami", "config path"],
            errors: &[Failure::Local(Fault::NotLoggedIn)],
            input_schema: None,
            output_schema: Some(schema_of::<Listed<AtHand>>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let mut items = from_environment()?;
        // Where nothing else is current, the stored session of the service and tenant is.
        let current = if items.is_empty() { current_key(context)? } else { None };
        for (base_url, tenant, session) in stored()?.all() {
            items.push(AtHand {
                source: "stored",
                current: current.as_ref().is_some_and(|(url, id)| url == base_url && id == tenant),
                base_url: Some(base_url.to_owned()),
                tenant_id: Some(tenant.clone()),
                user_id: Some(session.user_id),
                email: Some(session.email.clone()),
                role: Some(session.role),
                expires_at: Some(session.expires_at),
            });
        }
        if items.is_empty() {
            return Err(Fault::NotLoggedIn.bare());
        }
        context.out().print(&Listed { items })
    }
}

/// The credentials of the environment; the first is the one that commands act with.
fn from_environment() -> Result<Vec<AtHand>> {
    let mut items = Vec::new();
    for source in [TOKEN, API_KEY] {
        if environment::secret(source)?.is_some() {
            items.push(AtHand {
                source,
                current: items.is_empty(),
                base_url: None,
                tenant_id: None,
                user_id: None,
                email: None,
                role: None,
                expires_at: None,
            });
        }
    }
    Ok(items)
}

fn current_key(context: &Context) -> Result<Option<(String, TenantId)>> {
    let (service, all) = (context.service()?, stored()?);
    let tenant = context.named_tenant().or_else(|| all.current_tenant(service));
    Ok(tenant.map(|tenant| (service.to_string(), tenant.clone())))
}
