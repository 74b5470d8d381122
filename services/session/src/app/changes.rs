//! Audit events of ingest, which has no database: it has an event recorded here before it makes the change.

use audit::{AuditEvent, EventName};
use contract::internal::RecordChange;
use service::http::RequestId;

use super::App;

impl App {
    /// Records a change of a consumer or of dead letters. The tenant need not exist, because a consumer can be created before it.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn record_change(
        &self,
        change: RecordChange,
        request_id: &RequestId,
    ) -> Result<(), database::Error> {
        let RecordChange { tenant_id, actor, change, consumer, ip } = change;
        let mut tx = self.begin(&tenant_id, actor).await?;
        tx.audit(AuditEvent {
            consumer: consumer.map(|name| name.to_string()),
            request_id: Some(request_id.as_str().to_owned()),
            ip,
            ..AuditEvent::new(EventName::AuthzAdmin).about(change.as_str())
        });
        tx.commit().await
    }
}
