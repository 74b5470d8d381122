//! `svc auth device`: let devices in that ask to act as this person, or not.

mod approve;
mod deny;

use chrono::{DateTime, Utc};
use contract::device::{DecideDevice, Decision, DeviceRequest, InspectDevice};
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::group;
use crate::context::Context;
use crate::error::Result;
use crate::output::{Report, Table, time};

group!(
    /// Let devices in that ask to act as you, or not.
    Device {
        Approve(approve::Approve),
        Deny(deny::Deny),
    }
);

/// A device about which somebody has decided.
#[derive(Serialize, JsonSchema)]
struct Decided {
    /// Whether it was let in.
    approved: bool,
    /// What it calls itself; nobody has checked that.
    client_name: Option<String>,
    /// The address it asked from.
    ip: Option<String>,
    /// When it asked.
    created_at: DateTime<Utc>,
}

impl Report for Decided {
    fn table(&self) -> Table {
        Table::of_text(if self.approved {
            "The device is let in. It gets its session when it asks next."
        } else {
            "The device is denied. It gets nothing."
        })
    }
}

/// Shows what asks under a code, and sends the decision once it is confirmed.
async fn decide(context: &Context, user_code: String, decision: Decision) -> Result<()> {
    let (caller, api) = (context.session()?, context.api()?);
    let call = |route: &str| {
        let call = api.call(Method::POST, route).bearer(&caller.bearer)?;
        Ok(call.tenant(caller.tenant.as_ref()))
    };
    let inspect = InspectDevice { user_code: user_code.clone() };
    let asking: DeviceRequest = call("/auth/device/inspect")?.json(&inspect)?.fetch().await?;
    context.prompt().confirm(&question(&asking, decision)).await?;
    call("/auth/device/decide")?.json(&DecideDevice { user_code, decision })?.done().await?;
    let DeviceRequest { client_name, ip, created_at } = asking;
    context.out().print(&Decided { approved: decision == Decision::Approve, client_name, ip, created_at })
}

fn question(asking: &DeviceRequest, decision: Decision) -> String {
    let name = asking.client_name.as_deref().unwrap_or("without a name");
    let ip = asking.ip.as_deref().unwrap_or("an unknown address");
    let asks =
        format!("A device that calls itself \"{name}\" asked from {ip} at {}.", time(&asking.created_at));
    match decision {
        Decision::Approve => format!("{asks} Let it act as you?"),
        Decision::Deny => format!("{asks} Deny it?"),
    }
}
