//! What work that outlives its request keeps of it, so that its logs and calls are found with the request's own.

use serde::{Deserialize, Serialize};

use super::TraceContext;
use super::context::{Current, current, in_request, traceparent};
use crate::http::RequestId;

/// The request that caused some work, in a form that can be stored with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

impl Origin {
    /// The request at hand, if there is one.
    pub fn here() -> Option<Self> {
        let request_id = current(|request| request.request_id.as_str().to_owned())?;
        Some(Self { request_id, traceparent: traceparent() })
    }

    /// Does the work on behalf of the request, as if it were still at hand.
    pub fn resume<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        let trace = self.traceparent.as_deref().and_then(TraceContext::parse);
        let request = Current { request_id: RequestId::named(&self.request_id), client: None, trace };
        in_request(request, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_is_resumed_is_the_requests_own() {
        assert_eq!(Origin::here(), None);
        let text =
            r#"{"request_id":"r-1","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#;
        let stored: Origin = serde_json::from_str(text).unwrap();
        let resumed = stored.resume(async { Origin::here() }).await;
        assert_eq!(serde_json::to_string(&resumed).unwrap(), text);
    }

    #[tokio::test]
    async fn what_was_stored_badly_is_no_trace_and_another_request() {
        let bad = Origin { request_id: "two\nlines".to_owned(), traceparent: Some("nonsense".to_owned()) };
        let resumed = bad.resume(async { Origin::here() }).await.unwrap();
        assert_eq!((resumed.request_id.len(), resumed.traceparent), (32, None));
    }
}
