//! Reads the events of the caller's tenant.

use authn::{Caller, CredentialCache, CredentialWatch};
use bus::{EventFilter, EventRead, EventReader, Start};
use contract::internal::Credential;
use contract::{ProblemKind, Scope};
use ratelimit::{LocalLimiter, Source};
use service::Problem;
use tokio_util::sync::CancellationToken;

use super::App;
use super::open_streams::{OpenStreams, Place};

/// Open streams of the process. Clones share the limits.
#[derive(Clone)]
pub(crate) struct Readers {
    reader: EventReader,
    open: OpenStreams,
    credentials: CredentialCache,
    /// Streams that a tenant has opened: the broker does work for each, also if it ends at once.
    opened: LocalLimiter,
    draining: CancellationToken,
}

/// The events to read.
pub(crate) struct ReadRequest {
    pub(crate) event_types: Vec<String>,
    pub(crate) source_id: Option<String>,
    pub(crate) start: Start,
    pub(crate) follow: bool,
}

/// A stream and its share of the limits.
pub(crate) struct OpenStream {
    pub(crate) read: EventRead,
    /// Ends when the credential is not valid any more.
    pub(crate) credential: CredentialWatch,
    /// Cancelled when the process shuts down.
    pub(crate) draining: CancellationToken,
    pub(crate) place: Place,
}

impl Readers {
    pub(crate) fn new(
        reader: EventReader,
        credentials: CredentialCache,
        opened: LocalLimiter,
        draining: CancellationToken,
    ) -> Self {
        Self { reader, open: OpenStreams::new(), credentials, opened, draining }
    }

    /// Number of open streams.
    pub(crate) fn count(&self) -> i64 {
        i64::try_from(self.open.count()).unwrap_or(i64::MAX)
    }
}

impl App {
    /// Starts to read events of the caller's tenant.
    ///
    /// # Errors
    /// 403 for a source that the API key does not allow, 429 or 503 if too many streams are open, 429 if the tenant opens too many
    /// in a short time, 503 without the broker.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn read_events(
        &self,
        caller: &Caller,
        request: ReadRequest,
    ) -> Result<OpenStream, Problem> {
        let Readers { reader, open, credentials, opened, draining } = &self.readers;
        let tenant = caller.tenant_id();
        let filter = EventFilter {
            tenant: tenant.clone(),
            event_types: request.event_types,
            source_ids: source_ids(caller, request.source_id)?,
        };
        let opened_by = Source::from(tenant.as_str());
        opened.check(&opened_by)?;
        let place = open.open(tenant)?;
        opened.count(&opened_by);
        let unavailable = |error| Problem::new(ProblemKind::DependencyUnavailable).caused_by(error);
        let read = reader.read(&filter, request.start, request.follow).await.map_err(unavailable)?;
        let credential = credentials.watch(caller, Scope::EventsRead, self.clock.clone());
        Ok(OpenStream { read, credential, draining: draining.clone(), place })
    }
}

/// Returns the sources to read: the requested one, or all that the caller may read. Empty: every source.
fn source_ids(caller: &Caller, requested: Option<String>) -> Result<Vec<String>, ProblemKind> {
    let allowed: &[String] = match &caller.subject().credential {
        Credential::ApiKey { source_ids, .. } | Credential::ServiceAccount { source_ids, .. } => source_ids,
        Credential::Session { .. } => &[],
    };
    match requested {
        Some(source_id) if !allowed.is_empty() && !allowed.contains(&source_id) => {
            Err(ProblemKind::SourceNotAllowed)
        }
        Some(source_id) => Ok(vec![source_id]),
        None => Ok(allowed.to_vec()),
    }
}
