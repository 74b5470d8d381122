//! Deletes attempts at passwords that say nothing any more.

use std::time::Duration;

use service::Tasks;

use crate::app::App;
use crate::store::attempt;

const EVERY: Duration = Duration::from_mins(10);
/// Small, so that nobody waits behind a purge.
const BATCH: i64 = 500;

/// Purges until the tasks are told to stop.
pub(crate) async fn run(app: App, tasks: Tasks) {
    loop {
        if let Err(error) = purge(&app).await {
            tracing::warn!(%error, "attempts that say nothing any more cannot be purged now");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = tasks.stopping().cancelled() => return,
        }
    }
}

async fn purge(app: &App) -> Result<(), database::Error> {
    let now = app.clock.now();
    while attempt::delete_before(&app.database, now, BATCH).await? == BATCH {}
    Ok(())
}
