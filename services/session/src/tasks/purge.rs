//! Deletes sessions, API keys and device grants that are over, a day after: until then they can be looked at.

use std::time::Duration;

use chrono::TimeDelta;
use service::Tasks;

use crate::app::App;
use crate::store::{api_key, device_grant, session};

const EVERY: Duration = Duration::from_mins(10);
const KEPT: TimeDelta = TimeDelta::hours(24);
/// Small, so that nobody waits behind a purge.
const BATCH: i32 = 500;

/// Purges until the tasks are told to stop.
pub(crate) async fn run(app: App, tasks: Tasks) {
    loop {
        if let Err(error) = purge(&app).await {
            tracing::warn!(%error, "what is over cannot be purged now");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = tasks.stopping().cancelled() => return,
        }
    }
}

async fn purge(app: &App) -> Result<(), database::Error> {
    let before = app.clock.now() - KEPT;
    while session::delete_before(&app.database, before, BATCH).await? == i64::from(BATCH) {}
    while device_grant::delete_before(&app.database, before, BATCH).await? == i64::from(BATCH) {}
    while api_key::delete_before(&app.database, before, BATCH).await? == i64::from(BATCH) {}
    Ok(())
}
