//! Tell who stands behind credentials.

use authn::{Authority, Unavailable};
use contract::Role;
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use hashing::TokenDigest;
use uuid::Uuid;

use super::App;
use crate::domain::session::is_use_worth_noting;
use crate::store::session::{self, LiveSession};

impl App {
    /// One answer a digest, in order. One indexed look-up in the steady state; a use is noted once a minute.
    pub(crate) async fn introspect_all(
        &self,
        digests: &[TokenDigest],
    ) -> Result<Vec<Option<Subject>>, database::Error> {
        let now = self.clock.now();
        let live = session::introspect(&self.database, digests, now).await?;
        let used: Vec<Uuid> = live
            .iter()
            .filter(|session| is_use_worth_noting(session.last_seen_at, now))
            .map(|session| session.session_id.0)
            .collect();
        if !used.is_empty() {
            // The look-up is good without it, and the next one tries again.
            if let Err(error) = session::touch(&self.database, &used, now).await {
                tracing::warn!(%error, "the use of a session cannot be noted");
            }
        }
        let mut subjects = vec![None; digests.len()];
        for session in live {
            let place = usize::try_from(session.place - 1).ok().and_then(|place| subjects.get_mut(place));
            if let Some(place) = place {
                *place = Some(subject(session));
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

fn subject(live: LiveSession) -> Subject {
    Subject {
        credential: Credential::Session {
            session_id: live.session_id,
            user_id: live.user_id,
            // A constraint of the table keeps unknown roles out; should one come all the same, it may do least.
            role: live.role.parse().unwrap_or(Role::Member),
            method: session::method_from_str(&live.method),
            created_at: live.created_at,
            idle_expires_at: live.idle_expires_at,
        },
        tenant_id: live.tenant_id,
        quota: Quota {
            events_per_second: live.events_per_second.map(i32::cast_unsigned),
            bytes_per_second: live.bytes_per_second.map(i32::cast_unsigned),
        },
        expires_at: live.expires_at,
    }
}
