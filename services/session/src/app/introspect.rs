//! Tell who stands behind credentials. Look-ups of concurrent requests are gathered into one statement (`authn::IntrospectionBatcher`).

use std::sync::Arc;

use authn::{Introspection, Introspector, Unavailable};
use database::Database;
use hashing::TokenDigest;
use service::Clock;

use crate::domain::session::is_use_worth_noting;
use crate::store::credential;

/// The credentials that are live.
pub(crate) struct LiveCredentials {
    pub(crate) database: Database,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait::async_trait]
impl Introspector for LiveCredentials {
    /// One indexed look-up in the steady state; a use is noted once a minute.
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let now = self.clock.now();
        let live = credential::introspect(&self.database, digests, now).await;
        let live = live.map_err(Unavailable::because)?;
        let used = live.iter().filter(|live| is_use_worth_noting(live.last_seen_at, now));
        let used: Vec<_> = used.map(|live| &live.subject.credential).collect();
        // The look-up is good without it, and the next one tries again.
        if let Err(error) = credential::touch(&self.database, &used, now).await {
            tracing::warn!(%error, "the use of a credential cannot be noted");
        }
        let mut subjects = vec![None; digests.len()];
        for live in live {
            let place = usize::try_from(live.place - 1).ok().and_then(|place| subjects.get_mut(place));
            if let Some(place) = place {
                *place = Some(Arc::new(live.subject));
            }
        }
        Ok(subjects)
    }
}
