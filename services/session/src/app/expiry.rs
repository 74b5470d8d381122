//! Expired sessions. No request is involved when a session expires, so a sweep finds them and records their audit events: one for each
//! session, also with several replicas.

use audit::{Actor, AuditEvent, EventName};
use chrono::{DateTime, Utc};
use database::Database;

use crate::domain::session::EXPIRY_DELAY;
use crate::store::session::{self, StoredSession};

/// Records that sessions have expired, at most `batch` at a time. A transaction marks sessions of one tenant and writes their events, so
/// that no event is lost or repeated.
pub(crate) async fn record_expired_sessions(
    database: &Database,
    now: DateTime<Utc>,
    batch: i32,
) -> Result<(), database::Error> {
    let by = now - EXPIRY_DELAY;
    loop {
        let (mut found, mut recorded) = (0, 0);
        for (tenant_id, session_ids) in session::list_expired(database, by, batch).await? {
            let mut tx = database.begin(&tenant_id, Actor::System, now).await?;
            let expired = session::mark_expired(&mut tx, &session_ids, by).await?;
            (found, recorded) = (found + session_ids.len(), recorded + expired.len());
            for stored in &expired {
                tx.audit(event(stored));
            }
            tx.commit().await?;
        }
        // If another replica has locked all of them, it records them.
        if found < batch.unsigned_abs() as usize || recorded == 0 {
            return Ok(());
        }
    }
}

fn event(StoredSession { session, digest }: &StoredSession) -> AuditEvent {
    let lifecycle = session.lifecycle;
    let is_idle = lifecycle.idle_expires_at < lifecycle.expires_at;
    AuditEvent {
        about: Some(if is_idle { "idle" } else { "absolute" }),
        user_id: Some(session.created_under.user_id),
        session_id: Some(session.id),
        occurred_at: Some(lifecycle.idle_expires_at),
        ..AuditEvent::new(EventName::SessionExpired).credential(digest)
    }
}

#[cfg(test)]
mod tests;
