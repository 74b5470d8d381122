//! Tell who stands behind credentials.

use authn::{Authority, Unavailable};
use contract::internal::Subject;
use hashing::TokenDigest;

use super::App;
use crate::domain::session::is_use_worth_noting;
use crate::store::credential;

impl App {
    /// One answer a digest, in order. One indexed look-up in the steady state; a use is noted once a minute.
    pub(crate) async fn introspect_all(
        &self,
        digests: &[TokenDigest],
    ) -> Result<Vec<Option<Subject>>, database::Error> {
        let now = self.clock.now();
        let live = credential::introspect(&self.database, digests, now).await?;
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
                *place = Some(live.subject);
            }
        }
        Ok(subjects)
    }
}

#[async_trait::async_trait]
impl Authority for App {
    async fn introspect(&self, digest: TokenDigest) -> Result<Option<Subject>, Unavailable> {
        let subjects = self.introspect_all(&[digest]).await.map_err(|error| Unavailable(error.into()))?;
        Ok(subjects.into_iter().next().flatten())
    }
}
