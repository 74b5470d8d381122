//! Rotation of the credential: connections follow the files of URL, user and password.
//!
//! A changed credential is used as soon as the database accepts it and row-level security applies to its role; until then, the last one
//! remains. Each older connection is then replaced before its next use, so that no request fails and the old credential can be removed.

use std::convert::Infallible;
use std::time::Duration;

use service::chain;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{sleep, timeout};

use crate::Database;
use crate::database::{ACQUIRE_TIMEOUT, connect_options};
use crate::migrations::{MigrationError, check_runtime_role};
use crate::pool::timed_out;

/// Interval of checks for a change.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Database {
    /// Uses each new credential for new connections when the database accepts it, and replaces older connections. Never returns.
    pub(crate) async fn follow_access(self) -> Infallible {
        let (mut used, mut logged) = (self.access.content(), String::new());
        loop {
            sleep(CHECK_INTERVAL).await;
            let current = self.access.content();
            if current == used {
                continue;
            }
            if let Err(error) = self.switch().await {
                let error = chain(&error);
                if error != logged {
                    let schema = self.schema();
                    tracing::warn!(
                        schema,
                        error,
                        "failed to connect with the changed database credential; the last one remains"
                    );
                    logged = error;
                }
                continue;
            }
            // Connections that are being opened with the last one are open by then.
            sleep(ACQUIRE_TIMEOUT).await;
            self.retired.include_all();
            tracing::info!(schema = self.schema(), "database connections use the changed credential");
            (used, logged) = (current, String::new());
        }
    }

    async fn switch(&self) -> Result<(), MigrationError> {
        let options = connect_options(&self.access, self.schema())?;
        let connecting = async {
            let mut connection = options.connect().await?;
            check_runtime_role(self.schema(), &mut connection).await?;
            connection.close().await.map_err(MigrationError::from)
        };
        timeout(ACQUIRE_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(timed_out().into()))?;
        self.pool().set_options(options.clone());
        self.relay_pool().set_options(options);
        Ok(())
    }
}
