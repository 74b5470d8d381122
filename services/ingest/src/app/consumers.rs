//! Durable consumers of the event streams, for the platform administrator. Whether a tenant exists is not checked: ingest does not
//! know tenants, and a consumer can be created before its tenant.

use std::collections::HashSet;

use bus::{
    CONSUMER_API_PREFIX, Creation, Durable, DurableError, DurableFilter, Durables, PARTITIONS, is_event_type,
};
use contract::consumers::{
    Consumer, ConsumerName, CreateConsumer, MAX_EVENT_TYPES, NatsPermissions, Partitions,
};
use contract::{FieldError, Page, ProblemKind};
use service::Problem;
use service::http::Paging;

use super::{App, unavailable};

impl App {
    /// Creates a durable consumer. Returns whether it is new.
    ///
    /// # Errors
    /// 422 for an invalid filter, 409 `consumer_exists` for another definition, 503 without the broker.
    pub(crate) async fn create_consumer(
        &self,
        request: CreateConsumer,
    ) -> Result<(Consumer, Creation), Problem> {
        let errors = filter_errors(&request);
        if !errors.is_empty() {
            return Err(Problem::new(ProblemKind::ValidationFailed).fields(errors));
        }
        let filter = DurableFilter {
            partitions: request.partitions.map(|Partitions { first, last }| (first, last)),
            tenant_id: request.tenant_id,
            event_types: request.event_types,
        };
        let durables = self.durables()?;
        let (durable, creation) = durables.create(request.name.as_str(), &filter).await.map_err(problem)?;
        tracing::info!(consumer = durable.name, ?filter, ?creation, "consumer requested");
        Ok((consumer(durable, request.name), creation))
    }

    /// Returns a page of the consumers, ordered by name.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(crate) async fn list_consumers(
        &self,
        paging: &Paging<ConsumerName>,
    ) -> Result<Page<Consumer>, Problem> {
        let durables = self.durables()?.list().await.map_err(problem)?;
        let consumers = durables.into_iter().filter_map(|durable| {
            let name: ConsumerName = durable.name.parse().ok()?;
            let listed = paging.after.as_ref().is_none_or(|after| name > *after);
            listed.then(|| consumer(durable, name))
        });
        Ok(paging.page(consumers.collect(), |consumer| consumer.name.clone()))
    }

    /// Deletes a durable consumer.
    ///
    /// # Errors
    /// 404 `not_found`, or 503 without the broker.
    pub(crate) async fn delete_consumer(&self, name: &ConsumerName) -> Result<(), Problem> {
        if !self.durables()?.delete(name.as_str()).await.map_err(problem)? {
            return Err(ProblemKind::NotFound.into());
        }
        tracing::info!(consumer = %name, "consumer deleted");
        Ok(())
    }

    /// Returns whether a durable consumer exists.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(super) async fn has_consumer(&self, name: &ConsumerName) -> Result<bool, Problem> {
        self.durables()?.exists(name.as_str()).await.map_err(problem)
    }

    fn durables(&self) -> Result<Durables, Problem> {
        Durables::over(&self.nats, self.streams).map_err(unavailable)
    }
}

fn problem(error: DurableError) -> Problem {
    match error {
        DurableError::Exists => ProblemKind::ConsumerExists.into(),
        error @ DurableError::Failed { .. } => unavailable(error),
    }
}

fn filter_errors(request: &CreateConsumer) -> Vec<FieldError> {
    let error =
        |pointer: String, message: String| FieldError { pointer, code: "invalid_value".into(), message };
    let mut errors = Vec::new();
    if request.event_types.len() > MAX_EVENT_TYPES {
        errors.push(error("/event_types".to_owned(), format!("must have at most {MAX_EVENT_TYPES} items")));
    }
    let mut known = HashSet::new();
    for (index, event_type) in request.event_types.iter().enumerate() {
        let pointer = format!("/event_types/{index}");
        if !is_event_type(event_type) {
            let message = "must have 1 to 64 characters of A-Z, 0-9 and _, and start with a letter";
            errors.push(error(pointer, message.to_owned()));
        } else if !known.insert(event_type) {
            errors.push(error(pointer, "must occur only once".to_owned()));
        }
    }
    if let Some(Partitions { first, last }) = request.partitions
        && (first > last || last >= PARTITIONS)
    {
        let message = format!("must be a range of 0 to {}", PARTITIONS - 1);
        errors.push(error("/partitions".to_owned(), message));
    }
    errors
}

fn consumer(durable: Durable, name: ConsumerName) -> Consumer {
    let inbox_prefix = durable.inbox_prefix();
    let nats = NatsPermissions {
        api_prefix: CONSUMER_API_PREFIX.to_owned(),
        publish: durable.publish_permissions(),
        subscribe: vec![format!("{inbox_prefix}.>")],
        inbox_prefix,
    };
    Consumer {
        name,
        tenant_id: durable.filter.tenant_id,
        event_types: durable.filter.event_types,
        partitions: durable.filter.partitions.map(|(first, last)| Partitions { first, last }),
        streams: durable.streams,
        created_at: durable.created_at,
        pending: durable.pending,
        ack_pending: durable.ack_pending,
        redelivered: durable.redelivered,
        last_delivered_at: durable.last_delivered_at,
        last_acknowledged_at: durable.last_acknowledged_at,
        nats,
    }
}
