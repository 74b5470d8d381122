//! `svc auth login`

mod device;
mod pace;

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::Args;
use contract::identity;
use contract::session::IssuedSession;
use contract::{ProblemKind, Role};
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{TenantId, UserId};

use crate::base_url::BaseUrl;
use crate::catalog::{Access, Failure, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::credentials::{CredentialStore, StoredSession};
use crate::environment;
use crate::error::{Fault, Result};
use crate::output::{Report, Table, time};
use crate::prompt::{file_secret, stdin_secret};

/// Log in with e-mail and password, or by way of another device.
///
/// Asks for the password without echo; with --device, shows a code to approve in a browser anywhere. The session is kept in
/// a file that only you can read (see `svc config path`), and becomes the one that later commands act with.
#[derive(Args)]
pub(crate) struct Login {
    /// E-mail address of the account; asked for when it is left out.
    #[arg(long, value_name = "EMAIL")]
    email: Option<String>,
    /// Read the password from the first line of standard input.
    #[arg(long)]
    password_stdin: bool,
    /// Read the password from the first line of a file, where there is neither a terminal nor standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "password_stdin")]
    password_file: Option<PathBuf>,
    /// Show an address and a code, and wait until somebody has approved the code there: no password is typed here.
    #[arg(long, conflicts_with_all = ["email", "password_stdin", "password_file"])]
    device: bool,
}

/// What a login leads to. The token is kept, not printed: `svc auth token` prints it.
#[derive(Serialize, JsonSchema)]
struct LoggedIn {
    /// The service.
    base_url: String,
    /// The tenant.
    tenant_id: TenantId,
    /// Who logged in.
    user_id: UserId,
    /// With which address.
    email: String,
    /// What they may do.
    role: Role,
    /// When the session ends in any case.
    expires_at: DateTime<Utc>,
    /// When it ends if it is not used.
    idle_expires_at: DateTime<Utc>,
}

impl Report for LoggedIn {
    fn table(&self) -> Table {
        Table::of_fields([
            ("service", Some(self.base_url.clone())),
            ("tenant", Some(self.tenant_id.to_string())),
            ("user", Some(self.user_id.to_string())),
            ("email", Some(self.email.clone())),
            ("role", Some(self.role.to_string())),
            ("ends", Some(time(&self.expires_at))),
            ("ends unused", Some(time(&self.idle_expires_at))),
        ])
    }
}

impl Command for Login {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Identity,
            access: Access::Service,
            examples: &[
                (
                    "Log in, and be asked for the password",
                    "svc auth login --email ada@acme.example --tenant acme",
                ),
                (
                    "Log in from a script, with the password on standard input",
                    "svc auth login --email ada@acme.example --tenant acme --password-stdin",
                ),
                ("Log in on a machine without a browser", "svc auth login --device --tenant acme"),
            ],
            agent_notes: "Needs a terminal, unless --password-stdin, --password-file or --device is given. With --device, a \
                          person has to open the address and approve the code within ten minutes: both stand on standard \
                          error at once, with --output json as {\"device\": …} on a line. That session lives longer. Never pass a password \
                          as an argument. The answer does not tell a wrong password from an unknown address or tenant. After several failures \
                          even the right password is refused for a while: wait, do not hammer. SVC_TOKEN and SVC_API_KEY \
                          win over a stored session.",
            see_also: &[
                "auth logout",
                "auth whoami",
                "auth sessions list",
                "auth password reset",
                "users accept-invite",
                "auth device approve",
            ],
            errors: &[
                Failure::Local(Fault::DevicePending),
                Failure::Local(Fault::DeviceRefused),
                Failure::Local(Fault::InputNeeded),
                Failure::Local(Fault::InputInvalid),
                Failure::Local(Fault::InputUnreadable),
                Failure::Api(ProblemKind::LoginFailed),
            ],
            input_schema: None,
            output_schema: Some(schema_of::<LoggedIn>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let service = context.service()?;
        // Whoever cannot be kept need not be let in.
        CredentialStore::of_this_user()?.load()?;
        let tenant = context.tenant().await?;
        let (email, issued) = if self.device {
            device::log_in(context, &tenant).await?
        } else {
            self.with_password(context, &tenant).await?
        };
        let report = keep(service, email, issued)?;
        for variable in [environment::TOKEN, environment::API_KEY] {
            if environment::text(variable).is_some() {
                context.out().warn(&format!("{variable} is set and wins over this login"));
            }
        }
        context.out().print(&report)
    }
}

impl Login {
    /// The address that logs in, and its session.
    async fn with_password(self, context: &Context, tenant: &TenantId) -> Result<(String, IssuedSession)> {
        let email = match self.email {
            Some(email) => email,
            None => context.prompt().line("E-mail", "--email").await?,
        };
        let password = if self.password_stdin {
            stdin_secret("password").await?
        } else if let Some(path) = self.password_file {
            file_secret("password", path).await?
        } else {
            context.prompt().secret(
                &format!("Password of {email} in {tenant}"),
                "password",
                "--password-stdin or --password-file",
            )?
        };
        let login = identity::Login { email, password };
        let api = context.api()?;
        let call = api.call(Method::POST, "/auth/password/login").tenant(Some(tenant));
        let issued = call.json(&login)?.fetch().await?;
        Ok((login.email, issued))
    }
}

fn keep(service: &BaseUrl, email: String, issued: IssuedSession) -> Result<LoggedIn> {
    let session = StoredSession {
        token: issued.session_id.clone(),
        user_id: issued.user_id,
        email: email.clone(),
        role: issued.role,
        expires_at: issued.expires_at,
    };
    CredentialStore::of_this_user()?.update(|all| all.keep(service, issued.tenant_id.clone(), session))?;
    Ok(LoggedIn {
        base_url: service.to_string(),
        tenant_id: issued.tenant_id,
        user_id: issued.user_id,
        email,
        role: issued.role,
        expires_at: issued.expires_at,
        idle_expires_at: issued.idle_expires_at,
    })
}
