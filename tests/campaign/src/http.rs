//! Requests to a system with faults: no response is a result.

use std::time::Duration;

use reqwest::RequestBuilder;
use testkit::TestResponse;

/// Longer than any time limit of the services.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Sends a request. Returns `None` without a complete response.
pub(crate) async fn send(request: RequestBuilder) -> Option<TestResponse> {
    let response = request.timeout(TIMEOUT).send().await.ok()?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Some(TestResponse { status, headers, body: response.text().await.ok()? })
}
