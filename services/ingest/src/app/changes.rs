//! Audit of changes of consumers, dead letters and quarantined items. ingest has no database and cannot write audit events, so session
//! records an event before ingest makes the change: there is no change without it.

use std::collections::HashSet;

use contract::ProblemKind;
use contract::consumers::ConsumerName;
use contract::internal::{IngestChange, RecordChange};
use service::Problem;
use service::telemetry::client_address;
use tenancy::{Actor, TenantId};

use super::App;

impl App {
    /// Records a change of a consumer before it is made: as an audit event of the tenant, or in the log if it reads all tenants.
    ///
    /// # Errors
    /// 503 if the event cannot be recorded.
    pub(super) async fn record_change(
        &self,
        tenant_id: Option<&TenantId>,
        actor: Actor,
        change: IngestChange,
        consumer: Option<&ConsumerName>,
    ) -> Result<(), Problem> {
        let Some(tenant_id) = tenant_id else {
            let consumer = consumer.map(ConsumerName::as_str);
            tracing::info!(?actor, about = change.as_str(), consumer, "change of all tenants recorded");
            return Ok(());
        };
        let (tenant_id, consumer, ip) = (tenant_id.clone(), consumer.cloned(), client_address());
        let recorded =
            self.sessions.record_change(&RecordChange { tenant_id, actor, change, consumer, ip }).await;
        recorded.map_err(|error| {
            Problem::new(ProblemKind::DependencyUnavailable)
                .detail("The audit event of the change cannot be recorded. Repeat the request.")
                .caused_by(error)
        })
    }
}

/// The changes of one request to messages of several tenants. Each tenant gets one event, before its first message is changed.
pub(super) struct Changes<'a> {
    app: &'a App,
    actor: Actor,
    change: IngestChange,
    consumer: Option<&'a ConsumerName>,
    recorded: HashSet<TenantId>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(
        app: &'a App,
        actor: Actor,
        change: IngestChange,
        consumer: Option<&'a ConsumerName>,
    ) -> Self {
        Self { app, actor, change, consumer, recorded: HashSet::new() }
    }

    /// Returns the consumer of the messages. `None` for quarantined items.
    pub(super) fn consumer(&self) -> Option<&'a ConsumerName> {
        self.consumer
    }

    /// Records the change of a message of a tenant, if it is the first one.
    ///
    /// # Errors
    /// 503 if the event cannot be recorded.
    pub(super) async fn record(&mut self, tenant_id: &TenantId) -> Result<(), Problem> {
        if !self.recorded.contains(tenant_id) {
            self.app.record_change(Some(tenant_id), self.actor, self.change, self.consumer).await?;
            self.recorded.insert(tenant_id.clone());
        }
        Ok(())
    }
}
