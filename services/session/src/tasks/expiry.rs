//! Tells the audit of sessions that ran out: nobody asks anything when they do, so somebody has to look. Each is told of
//! once, however many replicas look.

use std::iter::repeat_with;
use std::time::Duration;

use service::Tasks;
use uuid::Uuid;

use crate::app::App;
use crate::store::session;

const EVERY: Duration = Duration::from_mins(1);
/// Small, so that what is told in one transaction is soon there for the relay.
const BATCH: usize = 500;

/// Looks until the tasks are told to stop.
pub(crate) async fn run(app: App, tasks: Tasks) {
    loop {
        if let Err(error) = tell(&app).await {
            tracing::warn!(%error, "the sessions that ran out cannot be told of now");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = tasks.stopping().cancelled() => return,
        }
    }
}

async fn tell(app: &App) -> Result<(), database::Error> {
    let now = app.clock.now();
    loop {
        let outbox_ids: Vec<Uuid> = repeat_with(Uuid::now_v7).take(BATCH).collect();
        if session::tell_expired(&app.database, &outbox_ids, now).await? < BATCH {
            return Ok(());
        }
    }
}
