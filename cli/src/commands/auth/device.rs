//! `svc auth device`: decisions about device logins (RFC 8628).

use chrono::{DateTime, Utc};
use clap::Args;
use contract::device::{DecideDevice, Decision, DeviceRequest, InspectDevice};
use contract::routes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table, now, relative};

group!(
    /// Approve or deny the login of a device.
    Device {
        Approve(Approve),
        Deny(Deny),
    }
);

/// Result of a decision about a device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DecidedDevice {
    /// Whether the login was approved.
    approved: bool,
    /// Name that the device reported; not verified.
    client_name: Option<String>,
    /// IP address of the request.
    ip: Option<String>,
    /// Time of the request.
    created_at: DateTime<Utc>,
}

impl CommandOutput for DecidedDevice {
    fn table(&self) -> Table {
        Table::message(if self.approved {
            "Device approved. It receives its session with its next request."
        } else {
            "Device denied."
        })
    }
}

/// Approve the login of a device.
///
/// Shows the request and asks for confirmation. The device gets a session with your permissions: approve only a login that
/// you started yourself. Requires a login with the password or a passkey in the last ten minutes.
#[derive(Args)]
pub(crate) struct Approve {
    /// Code that the device shows; case and hyphen are ignored.
    user_code: String,
}

impl Command for Approve {
    type Output = DecidedDevice;

    const ROUTES: Routes = Routes::Only(&[&routes::INSPECT_DEVICE, &routes::DECIDE_DEVICE]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Show a device login and approve it after confirmation", "svc auth device approve BCDF-GHJK"),
        ("Approve a device login in a script", "svc auth device approve BCDF-GHJK --yes"),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Check whether the device is logged in: `svc auth sessions list`. If it is not, run the command \
        again: the code of a decided login is not found.",
    );
    const AGENT_NOTES: &'static str = "Grants another machine the full permissions of the user. Approve \
        only a code that the user just read from their own device, and pass --yes only if the user asked \
        for it. reauthentication_required (exit status 4) means that the login is older than ten minutes or \
        was a device login. After ten wrong codes, every code fails with rate_limited, \
        except one per six minutes.";
    const SEE_ALSO: Names = &["auth device deny", "auth login", "auth sessions list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        decide(context, self.user_code, Decision::Approve).await
    }
}

/// Deny the login of a device.
///
/// Shows the request and asks for confirmation.
#[derive(Args)]
pub(crate) struct Deny {
    /// Code that the device shows; case and hyphen are ignored.
    user_code: String,
}

impl Command for Deny {
    type Output = DecidedDevice;

    const ROUTES: Routes = Routes::Only(&[&routes::INSPECT_DEVICE, &routes::DECIDE_DEVICE]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples =
        &[("Deny a device login that you did not start", "svc auth device deny BCDF-GHJK")];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run the command again: the code of a decided login is not found. `svc auth sessions list` shows \
        a login that was approved instead.",
    );
    const AGENT_NOTES: &'static str = "Requires --yes without a terminal. A code without a decision expires \
        after ten minutes. After ten wrong codes, every code fails with rate_limited, except one per \
        six minutes.";
    const SEE_ALSO: Names = &["auth device approve", "auth sessions list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        decide(context, self.user_code, Decision::Deny).await
    }
}

/// Shows the request with this code, and sends the decision after confirmation.
async fn decide(context: &Context, user_code: String, decision: Decision) -> Result<DecidedDevice> {
    let api = context.connect(Requirement::Session).await?;
    let inspect = InspectDevice { user_code: user_code.clone() };
    let request: DeviceRequest = api.call(&routes::INSPECT_DEVICE, &[]).json(&inspect)?.fetch().await?;
    context.prompt().confirm(&question(&request, decision)).await?;
    api.call(&routes::DECIDE_DEVICE, &[]).json(&DecideDevice { user_code, decision })?.execute().await?;
    let DeviceRequest { client_name, ip, created_at } = request;
    Ok(DecidedDevice { approved: decision == Decision::Approve, client_name, ip, created_at })
}

fn question(request: &DeviceRequest, decision: Decision) -> String {
    let name = request.client_name.as_deref().unwrap_or("unnamed");
    let ip = request.ip.as_deref().unwrap_or("an unknown address");
    let time = relative(&request.created_at, now());
    let question = match decision {
        Decision::Approve => "Allow it to act as you?",
        Decision::Deny => "Deny it?",
    };
    format!("Device \"{name}\" requested a login from {ip} {time}. {question}")
}
