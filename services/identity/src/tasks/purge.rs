//! Deletes expired login attempts.

use std::time::Duration;

use service::{Tasks, chain};

use crate::app::App;
use crate::store::login_attempt;

const INTERVAL: Duration = Duration::from_mins(10);
/// Small, so that a login does not wait long for a row lock.
const BATCH: i64 = 500;

/// Runs until the tasks are stopped.
pub(crate) async fn run(app: App, tasks: Tasks) {
    loop {
        if let Err(error) = purge(&app).await {
            tracing::warn!(error = chain(&error), "failed to purge expired login attempts");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = tasks.stopping().cancelled() => return,
        }
    }
}

async fn purge(app: &App) -> Result<(), database::Error> {
    let now = app.clock.now();
    while login_attempt::delete_before(&app.database, now, BATCH).await? == BATCH {}
    Ok(())
}
