//! What a service with a database is built from.

use std::sync::Arc;

use hashing::{Entropy, SystemEntropy};
use service::clock::SystemClock;
use service::health::Readiness;
use service::telemetry::Telemetry;
use service::{Clock, Tasks};

use crate::migrations::Migrations;
use crate::{Database, DatabaseSettings, Error};

/// The injected dependencies of a service with a database.
pub struct Parts {
    /// The database with the schema of the service.
    pub database: Database,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
    /// The source of random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// The background tasks.
    pub tasks: Tasks,
    /// Metrics and traces.
    pub telemetry: Telemetry,
}

impl Parts {
    /// Returns the dependencies of a process. The service is not ready before its schema is.
    ///
    /// # Errors
    /// The URL of the database is malformed.
    pub fn for_process(
        settings: &DatabaseSettings,
        migrations: &Migrations,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> Result<Self, Error> {
        let database = settings.pool(migrations.schema)?;
        migrations.gate(&database, tasks, readiness);
        Ok(Self {
            database,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            tasks: tasks.clone(),
            telemetry: telemetry.clone(),
        })
    }
}
