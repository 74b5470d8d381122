//! `svc auth login --device`: the client as the device of RFC 8628. Shows URL and code, and polls until a decision.

use std::time::Duration;

use contract::device::{
    DeviceCodes, DeviceError, DeviceErrorResponse, DeviceSession, GRANT_TYPE, PollDevice, StartDevice,
};
use contract::identity::User;
use contract::routes;
use contract::session::IssuedSession;
use reqwest::StatusCode;
use serde_json::json;
use tenancy::TenantId;
use tokio::time::{Instant, sleep_until};

use crate::framework::api::Api;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Exit, Result};
use crate::framework::input::run_blocking;

/// Increase of the interval after `slow_down` (RFC 8628, section 3.5).
const SLOW_DOWN_INCREMENT: Duration = Duration::from_secs(5);
/// Minimum interval, if the service requests none.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the e-mail address of the user who approved, and the session.
pub(super) async fn log_in(context: &Context, tenant: &TenantId) -> Result<(String, IssuedSession)> {
    let api = context.api()?;
    let machine = gethostname::gethostname();
    let start = StartDevice {
        tenant_id: None,
        client_name: Some(format!("svc on {}", machine.to_string_lossy())),
        client_id: Some("svc".to_owned()),
        scope: None,
    };
    let call = api.call(&routes::START_DEVICE, &[]).tenant(Some(tenant));
    let codes: DeviceCodes = call.json(&start)?.fetch().await?;
    show_code(context, &codes);

    let (interval, lifetime) = (Duration::from_secs(codes.interval), Duration::from_secs(codes.expires_in));
    let session = tokio::select! {
        session = poll_until_decided(interval, lifetime, async || poll(&api, &codes).await) => session?,
        never = offer_browser(context, &codes) => never?,
    };
    let email = email_of(&api, &session).await;
    Ok((email, session))
}

/// Prints URL and code, with `--quiet` too: the login cannot succeed without them.
fn show_code(context: &Context, codes: &DeviceCodes) {
    let text = format!("Open {} in a browser and enter the code {}", codes.verification_uri, codes.user_code);
    let data = json!({"device": {
        "verification_uri": codes.verification_uri,
        "verification_uri_complete": codes.verification_uri_complete,
        "user_code": codes.user_code,
        "expires_in": codes.expires_in,
    }});
    context.out().instruct(&text, &data);
}

/// Result of one poll; the error if the login is denied, expired, or not decided yet.
type Poll<T> = std::result::Result<T, DeviceError>;

async fn poll(api: &Api, codes: &DeviceCodes) -> Result<Poll<IssuedSession>> {
    let request = PollDevice {
        grant_type: Some(GRANT_TYPE.to_owned()),
        device_code: Some(codes.device_code.clone()),
        client_id: Some("svc".to_owned()),
    };
    let response = api.call(&routes::REDEEM_DEVICE, &[]).json(&request)?.send_any().await?;
    if response.status() == StatusCode::BAD_REQUEST {
        return Ok(Err(response.json::<DeviceErrorResponse>()?.error));
    }
    Ok(Ok(response.error_for_status()?.json::<DeviceSession>()?.session))
}

/// Polls until a decision or the end of the codes' lifetime. The interval grows by five seconds after `slow_down`, and
/// doubles while the service is unavailable.
async fn poll_until_decided<T>(
    interval: Duration,
    lifetime: Duration,
    poll: impl AsyncFn() -> Result<Poll<T>>,
) -> Result<T> {
    let expiry = Instant::now() + lifetime;
    let mut interval = interval.max(MIN_INTERVAL);
    // A lost response may have been the session. Then the code is used up, and the next answer is an error.
    let mut lost = None;
    loop {
        let next = Instant::now() + interval;
        sleep_until(next.min(expiry)).await;
        if next >= expiry {
            return Err(lost.unwrap_or_else(|| ErrorKind::DevicePending.into()));
        }
        match poll().await {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(DeviceError::AuthorizationPending)) => lost = None,
            Ok(Err(DeviceError::SlowDown)) => {
                lost = None;
                interval += SLOW_DOWN_INCREMENT;
            }
            Ok(Err(error)) => return Err(lost.unwrap_or_else(|| device_error(error))),
            Err(error) if error.exit == Exit::Uncertain => {
                lost = Some(error);
                interval *= 2;
            }
            Err(error) if error.exit == Exit::Unavailable => interval *= 2,
            Err(error) => return Err(error),
        }
    }
}

fn device_error(error: DeviceError) -> CliError {
    match error {
        DeviceError::ExpiredToken => ErrorKind::DevicePending.into(),
        error => ErrorKind::DeviceDenied.with_message(error.description()),
    }
}

/// Opens a browser after Enter on a terminal. Never returns a session: the poll reports the decision.
async fn offer_browser(context: &Context, codes: &DeviceCodes) -> Result<IssuedSession> {
    if context.prompt().wait_for_enter("Press Enter to open the page in a browser").await? {
        let url = codes.verification_uri_complete.clone();
        // Other schemes could start any program of this machine.
        let opened = if url.starts_with("https://") || url.starts_with("http://") {
            run_blocking(move || Ok(open::that_detached(url).is_ok())).await?
        } else {
            false
        };
        if !opened {
            context.out().warn("failed to open a browser; open the URL yourself");
        }
    }
    std::future::pending().await
}

/// E-mail address of the user, or the user id if the request fails: the session is valid without it.
async fn email_of(api: &Api, session: &IssuedSession) -> String {
    let request = async {
        let call = api.call(&routes::GET_USER, &[&session.user_id]).token(&session.session_id)?;
        call.fetch::<User>().await
    };
    request.await.map_or_else(|_| session.user_id.to_string(), |user| user.email)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Polls a service with these results. Returns the outcome, and the times of the polls in seconds.
    async fn poll_results(results: Vec<Result<Poll<()>>>, lifetime: u64) -> (Result<()>, Vec<u64>) {
        let start = Instant::now();
        let (results, times) = (RefCell::new(results.into_iter()), RefCell::new(Vec::new()));
        let poll = async || {
            times.borrow_mut().push(start.elapsed().as_secs());
            results.borrow_mut().next().unwrap_or(Ok(Err(DeviceError::AuthorizationPending)))
        };
        let outcome = poll_until_decided(Duration::from_secs(5), Duration::from_secs(lifetime), poll).await;
        (outcome, times.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn rfc_8628_section_3_5_slow_down_increases_the_interval_permanently() {
        let results = vec![
            Ok(Err(DeviceError::AuthorizationPending)),
            Ok(Err(DeviceError::SlowDown)),
            Ok(Err(DeviceError::AuthorizationPending)),
            Ok(Err(DeviceError::SlowDown)),
            Ok(Ok(())),
        ];
        let (outcome, times) = poll_results(results, 600).await;
        assert_eq!((outcome.is_ok(), times), (true, vec![5, 10, 20, 30, 45]));
    }

    #[tokio::test(start_paused = true)]
    async fn rfc_8628_section_3_5_an_unavailable_service_doubles_the_interval() {
        let results = vec![Err(ErrorKind::TimedOut.into()), Err(ErrorKind::Unreachable.into()), Ok(Ok(()))];
        let (outcome, times) = poll_results(results, 600).await;
        assert_eq!((outcome.is_ok(), times), (true, vec![5, 15, 35]));
    }

    #[tokio::test(start_paused = true)]
    async fn rfc_8628_section_3_5_any_other_error_ends_the_polling() {
        for (error, code) in [
            (DeviceError::AccessDenied, "device_denied"),
            (DeviceError::InvalidGrant, "device_denied"),
            (DeviceError::InvalidRequest, "device_denied"),
            (DeviceError::ExpiredToken, "device_pending"),
        ] {
            let (outcome, times) = poll_results(vec![Ok(Err(error))], 600).await;
            assert_eq!((outcome.unwrap_err().code.as_str(), times.len()), (code, 1));
        }
        let (outcome, times) = poll_results(vec![Err(ErrorKind::UnexpectedResponse.into())], 600).await;
        assert_eq!((outcome.unwrap_err().code.as_str(), times.len()), ("unexpected_response", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn polling_ends_when_the_codes_expire() {
        let start = Instant::now();
        let (outcome, times) = poll_results(Vec::new(), 12).await;
        let error = outcome.unwrap_err();
        assert_eq!((error.code.as_str(), error.exit.code()), ("device_pending", 8));
        assert_eq!((times, start.elapsed().as_secs()), (vec![5, 10], 12));
    }
}
