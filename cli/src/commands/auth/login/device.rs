//! `svc auth login --device` (RFC 8628): shows where to approve what, and waits until somebody has.

use std::time::Duration;

use contract::device::{
    DeviceCodes, DeviceErrorResponse, DeviceSession, GRANT_TYPE, PollDevice, StartDevice,
};
use contract::identity::User;
use contract::session::IssuedSession;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tenancy::TenantId;

use super::pace::{Asked, until_decided};
use crate::api::Api;
use crate::blocking::blocking;
use crate::context::Context;
use crate::error::{Fault, Result};

/// The address of who has approved, and the session.
pub(super) async fn log_in(context: &Context, tenant: &TenantId) -> Result<(String, IssuedSession)> {
    let api = context.api()?;
    let machine = gethostname::gethostname();
    let start = StartDevice {
        client_name: Some(format!("svc on {}", machine.to_string_lossy())),
        client_id: Some("svc".to_owned()),
        scope: None,
    };
    let call = api.call(Method::POST, "/auth/device/code").tenant(Some(tenant));
    let codes: DeviceCodes = call.json(&start)?.fetch().await?;
    show(context, &codes);

    let seconds = Duration::from_secs;
    let decided =
        until_decided(seconds(codes.interval), seconds(codes.expires_in), async || ask(&api, &codes).await);
    let session = tokio::select! {
        session = decided => session?,
        never = offer_browser(context, &codes) => never?,
    };
    let email = email_of(&api, &session).await;
    Ok((email, session))
}

/// Always, since nothing happens until somebody knows it.
fn show(context: &Context, codes: &DeviceCodes) {
    let text = format!("Open {} in a browser and enter the code {}", codes.verification_uri, codes.user_code);
    let data = json!({"device": {
        "verification_uri": codes.verification_uri,
        "verification_uri_complete": codes.verification_uri_complete,
        "user_code": codes.user_code,
        "expires_in": codes.expires_in,
    }});
    context.out().instruct(&text, &data);
}

async fn ask(api: &Api, codes: &DeviceCodes) -> Result<Asked<IssuedSession>> {
    let poll = PollDevice {
        grant_type: Some(GRANT_TYPE.to_owned()),
        device_code: Some(codes.device_code.clone()),
        client_id: Some("svc".to_owned()),
    };
    let answer = api.call(Method::POST, "/auth/device/token").json(&poll)?.answer().await?;
    if answer.status() == StatusCode::BAD_REQUEST {
        return Ok(Asked::Refused(answer.read::<DeviceErrorResponse>()?.error));
    }
    Ok(Asked::LetIn(answer.successful()?.read::<DeviceSession>()?.session))
}

/// Opens a browser when a person who can be asked presses Enter. Never ends well by itself: whether anybody decides there,
/// the service tells.
async fn offer_browser(context: &Context, codes: &DeviceCodes) -> Result<IssuedSession> {
    if context.prompt().pause("Press Enter to open it in a browser here").await? {
        let address = codes.verification_uri_complete.clone();
        // A service could name anything that this machine opens with something.
        let opened = if address.starts_with("https://") || address.starts_with("http://") {
            blocking(move || {
                open::that_detached(address).map_err(|error| Fault::Defect.because(error.to_string()))
            })
            .await
        } else {
            Err(Fault::UnexpectedAnswer.because("it is no address of a page"))
        };
        if let Err(error) = opened {
            context.out().warn(&format!("no browser can be opened: {}", error.message));
        }
    }
    std::future::pending().await
}

/// The session is good without it, so nothing that goes wrong here is worth losing it for.
async fn email_of(api: &Api, session: &IssuedSession) -> String {
    let ask = async {
        let call = api.call(Method::GET, &format!("/users/{}", session.user_id));
        call.bearer(&session.session_id)?.fetch::<User>().await
    };
    ask.await.map_or_else(|_| session.user_id.to_string(), |user| user.email)
}
