//! The use cases, and the dependencies that they share.

mod ingest_batch;
mod ingest_event;

use std::sync::Arc;
use std::time::Duration;

use authn::CredentialVerifier;
use axum::extract::FromRef;
use bus::{MemoryBudget, Publisher};
use service::Clock;

pub(crate) use ingest_batch::{BatchError, Format};
pub(crate) use ingest_event::Submission;

/// Timeout of a request for the acknowledgements of the stream, counted from the complete body.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Memory for the request bodies of the process.
pub(crate) const BODY_BUDGET: usize = 256 * 1024 * 1024;

/// The dependencies of the use cases. Clones share them.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) verifier: Arc<dyn CredentialVerifier>,
    pub(crate) publisher: Publisher,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) body_budget: MemoryBudget,
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::clone(&app.verifier)
    }
}
