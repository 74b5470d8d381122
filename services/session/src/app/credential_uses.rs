//! Records when credentials were last used. A check does not wait for it: it adds the use to a queue, and one task saves
//! the queue, so that many uses share a statement and checks do not depend on the speed of writes.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use database::Database;
use parking_lot::Mutex;
use service::{Clock, LogThrottle, Tasks, chain};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::store::credential::{self, Uses};

/// Maximum number of waiting uses. Above it, uses are discarded.
const MAX_WAITING: usize = 65_536;
/// Pause between two saves, during which uses collect.
const SAVE_INTERVAL: Duration = Duration::from_millis(20);
/// How long a use is kept that cannot be saved. Less than the minute after which expired sessions are audited, so that such a session
/// does not become active again.
const MAX_AGE: TimeDelta = TimeDelta::seconds(30);

/// The uses that are not saved yet. Clones share them. If a use is lost, the next check of the credential adds its own.
#[derive(Clone, Default)]
pub(crate) struct CredentialUses(Arc<UseQueue>);

#[derive(Default)]
struct UseQueue {
    waiting: Mutex<Uses>,
    added: Notify,
}

impl CredentialUses {
    /// Adds uses. They replace those of the same credentials.
    pub(crate) fn add(&self, uses: Uses) {
        if uses.is_empty() {
            return;
        }
        let mut waiting = self.0.waiting.lock();
        if waiting.len() < MAX_WAITING {
            waiting.extend(uses);
        }
        self.0.added.notify_one();
    }

    /// Saves uses until the process stops, and then those that wait.
    pub(crate) async fn save(self, database: Database, clock: Arc<dyn Clock>, tasks: Tasks) {
        let (stopping, log_throttle) = (tasks.stopping(), LogThrottle::default());
        let mut is_last = false;
        while !is_last {
            stopping.run_until_cancelled(self.0.added.notified()).await;
            is_last = stopping.is_cancelled();
            let (mut uses, oldest) = (take(&mut *self.0.waiting.lock()), clock.now() - MAX_AGE);
            uses.retain(|_, it| it.used_at > oldest);
            if let Err(error) = credential::save_uses(&database, &mut uses).await
                && log_throttle.is_due()
            {
                tracing::warn!(error = chain(&error), "failed to save the last use of credentials");
            }
            stopping.run_until_cancelled(sleep(SAVE_INTERVAL)).await;
            self.add_again(uses);
        }
    }

    /// Adds uses that could not be saved, except those of credentials that were used again meanwhile.
    fn add_again(&self, uses: Uses) {
        for (id, unsaved) in uses {
            self.0.waiting.lock().entry(id).or_insert(unsaved);
            self.0.added.notify_one();
        }
    }
}
