//! The streams of audit events. identity, which publishes to both of them, creates missing ones. No service changes an existing one, so
//! that a compromised service cannot delete audit events: an administrator does (`svc-identity streams apply`).

use std::time::Duration;

use bus::{AuditProfile, StreamDefinition, StreamMode, StreamSettings};
use service::Tasks;

service::variables! {
    /// Settings of the streams of audit events.
    #[derive(Clone, Copy)]
    pub struct AuditStreamSettings {
        common: StreamSettings,
        /// Retention of audit events of tenants (`AUDIT`). An administrator changes that of an existing stream with `svc-identity streams
        /// apply`.
        max_age: Duration = bus::retention("SVC_AUDIT_MAX_AGE", "400d"),
    }
}

impl AuditStreamSettings {
    /// Returns the definitions of the streams.
    pub fn definitions(&self) -> Vec<StreamDefinition> {
        let StreamSettings { replicas, max_bytes, compression, .. } = self.common;
        (&AuditProfile { replicas, max_bytes, max_age: self.max_age, compression }).into()
    }

    /// Starts a task that creates or verifies the streams. Audit events wait in the outbox until they exist.
    pub fn start(self, nats: bus::Config, tasks: &Tasks) {
        let (definitions, stop) = (self.definitions(), tasks.stopping().clone());
        tasks.spawn_short(async move {
            let valid = async {
                match self.common.mode {
                    StreamMode::Verify => {
                        bus::until_valid(&nats, bus::API_PREFIX, &definitions, bus::verify).await;
                    }
                    StreamMode::Ensure => {
                        bus::until_valid(&nats, bus::API_PREFIX, &definitions, bus::create).await;
                    }
                }
            };
            // Boxed because the future is large.
            stop.run_until_cancelled(Box::pin(valid)).await;
        });
    }
}
