//! Durable consumers of the event streams, for the platform administrator. Whether a tenant exists is not checked: ingest does not
//! know tenants, and a consumer can be created before its tenant.

use std::collections::HashSet;
use std::time::Duration;

use bus::{
    ConsumerLogins, Created, Durable, DurableDefinition, DurableError, DurableFilter, Durables, PARTITIONS,
    is_event_type,
};
use chrono::{DateTime, Utc};
use contract::consumers::{
    Consumer, ConsumerAccounts, ConsumerLogin, ConsumerName, ConsumerStart, CreateConsumer, CreatedConsumer,
    MAX_ACK_PENDING, MAX_ACK_WAIT_SECONDS, MAX_EVENT_TYPES, Partitions,
};
use contract::internal::IngestChange;
use contract::{FieldError, Page, ProblemKind};
use futures::future::try_join_all;
use hashing::{RawToken, SystemEntropy};
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, TenantId};

use super::{App, unavailable};

/// The users of the broker that are no consumers (`deploy/nats/accounts.conf`, `system` in `deploy/examples/nats-values.yaml`). Names are
/// unique in the broker.
const SERVICE_USERS: [&str; 6] =
    ["administrator", "audit-administrator", "identity", "ingest", "session", "system"];
/// How far the clock of a client can be ahead.
const MAX_START_AHEAD: Duration = Duration::from_mins(1);

impl App {
    /// Creates a durable consumer with a login. The login is absent if the consumer exists.
    ///
    /// # Errors
    /// 422 for an invalid definition, 409 `consumer_exists` for another definition, 503 without the broker or an audit event.
    pub(crate) async fn create_consumer(&self, request: CreateConsumer) -> Result<CreatedConsumer, Problem> {
        let definition = definition(&request, self.clock.now())?;
        let (durables, name) = (self.durables().await?, request.name.as_str());
        let (tenant_id, change) = (request.tenant_id.as_ref(), IngestChange::ConsumerCreated);
        self.record_change(tenant_id, Actor::PlatformAdmin, change, Some(&request.name)).await?;
        let created = durables.create(name, &definition, &SystemEntropy).await.map_err(problem)?;
        tracing::info!(
            consumer = name,
            ?definition,
            is_new = created.password.is_some(),
            "consumer requested"
        );
        self.with_login(created, request.name).await
    }

    /// Replaces the login of a consumer.
    ///
    /// # Errors
    /// 404 `not_found`, or 503 without the broker or an audit event.
    pub(crate) async fn rotate_consumer_login(&self, name: ConsumerName) -> Result<CreatedConsumer, Problem> {
        let durables = self.durables().await?;
        self.record(&durables, &name, IngestChange::ConsumerLoginReplaced).await?;
        let replaced = durables.replace_login(name.as_str(), &SystemEntropy).await.map_err(problem)?;
        let created = replaced.ok_or(ProblemKind::NotFound)?;
        tracing::info!(consumer = %name, "login of consumer replaced");
        self.with_login(created, name).await
    }

    /// Returns a consumer, with its login if it has a new one.
    async fn with_login(&self, created: Created, name: ConsumerName) -> Result<CreatedConsumer, Problem> {
        let login = match created.password {
            Some(password) => {
                let active = self.activate(&created.durable, &password).await;
                let (user, password) = (name.to_string(), password.expose().to_owned());
                Some(ConsumerLogin { user, password, active })
            }
            None => None,
        };
        // Without a request to the broker: the login would be lost if it failed.
        Ok(CreatedConsumer { consumer: consumer(created.durable, name, None, self.clock.now()), login })
    }

    /// Waits until the broker accepts a new login, if something keeps the accounts. Returns whether it does. The broker rejects a login
    /// that is suspended.
    pub(super) async fn activate(&self, durable: &Durable, password: &RawToken) -> bool {
        let (logins, is_suspended) = (self.logins(), durable.is_suspended(self.clock.now()));
        logins.apply().await && !is_suspended && logins.wait_until_usable(durable, password.expose()).await
    }

    /// Returns the file with the accounts of all consumers.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(crate) async fn consumer_accounts(&self) -> Result<ConsumerAccounts, Problem> {
        let durables = self.durables().await?.list().await.map_err(problem)?;
        Ok(ConsumerAccounts { content: bus::accounts_file(&durables) })
    }

    /// Returns a page of the consumers, ordered by name; with a tenant, its consumers.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(crate) async fn list_consumers(
        &self,
        tenant: Option<&TenantId>,
        paging: &Paging<ConsumerName>,
    ) -> Result<Page<Consumer>, Problem> {
        let durables = self.durables().await?;
        let found = durables.list().await.map_err(problem)?;
        let listed = found.into_iter().filter(|durable| is_of(durable, tenant)).filter_map(|durable| {
            let name: ConsumerName = durable.name.parse().ok()?;
            paging.after.as_ref().is_none_or(|after| name > *after).then_some((name, durable))
        });
        let Page { items, next_cursor } = paging.page(listed.collect(), |(name, _)| name.clone());
        let measured = items.into_iter().map(|(name, durable)| self.measured(&durables, durable, name));
        Ok(Page { items: try_join_all(measured).await?, next_cursor })
    }

    /// Returns a consumer; with a tenant, only one of the tenant.
    ///
    /// # Errors
    /// 404 `not_found`, or 503 without the broker.
    pub(crate) async fn get_consumer(
        &self,
        tenant: Option<&TenantId>,
        name: ConsumerName,
    ) -> Result<Consumer, Problem> {
        let durables = self.durables().await?;
        let found = durables.get(name.as_str()).await.map_err(problem)?;
        let durable = found.filter(|durable| is_of(durable, tenant)).ok_or(ProblemKind::NotFound)?;
        self.measured(&durables, durable, name).await
    }

    /// Returns a consumer with the age of its oldest unread event.
    async fn measured(
        &self,
        durables: &Durables,
        durable: Durable,
        name: ConsumerName,
    ) -> Result<Consumer, Problem> {
        let now = self.clock.now();
        let age = durables.oldest_unread_age(&durable, now).await.map_err(problem)?;
        Ok(consumer(durable, name, Some(age), now))
    }

    /// Deletes a durable consumer and its login.
    ///
    /// # Errors
    /// 404 `not_found`, or 503 without the broker or an audit event.
    pub(crate) async fn delete_consumer(&self, name: &ConsumerName) -> Result<(), Problem> {
        let durables = self.durables().await?;
        self.record(&durables, name, IngestChange::ConsumerDeleted).await?;
        let existed = durables.delete(name.as_str()).await.map_err(problem)?;
        // Also without the durable: an earlier request may have ended between the two.
        self.logins().apply().await;
        if !existed {
            return Err(ProblemKind::NotFound.into());
        }
        tracing::info!(consumer = %name, "consumer deleted");
        Ok(())
    }

    /// Stops or continues the delivery of a consumer. The latter also ends a suspension of its login.
    ///
    /// # Errors
    /// 404 `not_found`, or 503 without the broker or an audit event.
    pub(crate) async fn pause_consumer(&self, name: ConsumerName, pause: bool) -> Result<Consumer, Problem> {
        let durables = self.durables().await?;
        let change = if pause { IngestChange::ConsumerPaused } else { IngestChange::ConsumerResumed };
        self.record(&durables, &name, change).await?;
        if !durables.set_paused(name.as_str(), pause).await.map_err(problem)? {
            return Err(ProblemKind::NotFound.into());
        }
        if !pause {
            // The end of a suspension.
            self.logins().apply().await;
        }
        tracing::info!(consumer = %name, pause, "delivery of consumer changed");
        self.get_consumer(None, name).await
    }

    /// Lets a consumer read from another event.
    ///
    /// # Errors
    /// 422 for a time in the future, 404 `not_found`, or 503 without the broker or an audit event.
    pub(crate) async fn reset_consumer(
        &self,
        name: ConsumerName,
        to: ConsumerStart,
    ) -> Result<Consumer, Problem> {
        if let Some(error) = start_error("/to", to, self.clock.now()) {
            return Err(Problem::new(ProblemKind::ValidationFailed).fields(vec![error]));
        }
        let durables = self.durables().await?;
        self.record(&durables, &name, IngestChange::ConsumerReset).await?;
        if !durables.reset(name.as_str(), to).await.map_err(problem)? {
            return Err(ProblemKind::NotFound.into());
        }
        tracing::info!(consumer = %name, ?to, "consumer reset");
        self.get_consumer(None, name).await
    }

    /// Records a change of the platform administrator, if the consumer exists.
    async fn record(
        &self,
        durables: &Durables,
        name: &ConsumerName,
        change: IngestChange,
    ) -> Result<(), Problem> {
        let Some(durable) = durables.get(name.as_str()).await.map_err(problem)? else { return Ok(()) };
        let tenant_id = durable.definition.filter.tenant_id.as_ref();
        self.record_change(tenant_id, Actor::PlatformAdmin, change, Some(name)).await
    }

    /// Returns whether a durable consumer exists.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(super) async fn has_consumer(&self, name: &ConsumerName) -> Result<bool, Problem> {
        self.durables().await?.exists(name.as_str()).await.map_err(problem)
    }

    pub(super) async fn durables(&self) -> Result<Durables, Problem> {
        Durables::over(&self.nats, self.streams).await.map_err(unavailable)
    }

    pub(super) fn logins(&self) -> ConsumerLogins {
        ConsumerLogins::new(self.nats.clone(), self.nats_config.clone())
    }
}

fn is_of(durable: &Durable, tenant: Option<&TenantId>) -> bool {
    tenant.is_none() || durable.definition.filter.tenant_id.as_ref() == tenant
}

pub(super) fn problem(error: DurableError) -> Problem {
    match error {
        DurableError::Exists => ProblemKind::ConsumerExists.into(),
        error @ (DurableError::Failed { .. } | DurableError::NoAccount) => unavailable(error),
    }
}

/// Returns the definition of a durable.
pub(super) fn definition(request: &CreateConsumer, now: DateTime<Utc>) -> Result<DurableDefinition, Problem> {
    let mut errors = definition_errors(request);
    errors.extend(start_error("/start", request.start.unwrap_or_default(), now));
    if !errors.is_empty() {
        return Err(Problem::new(ProblemKind::ValidationFailed).fields(errors));
    }
    Ok(DurableDefinition {
        filter: DurableFilter {
            partitions: request.partitions,
            tenant_id: request.tenant_id.clone(),
            event_types: request.event_types.clone(),
        },
        start: request.start.unwrap_or_default(),
        ack_wait_seconds: request.ack_wait_seconds,
        max_ack_pending: request.max_ack_pending,
    })
}

fn error(pointer: String, message: String) -> FieldError {
    FieldError { pointer, code: "invalid_value".into(), message }
}

/// The broker would start with new events at once.
fn start_error(pointer: &str, start: ConsumerStart, now: DateTime<Utc>) -> Option<FieldError> {
    let is_ahead = matches!(start, ConsumerStart::At(time) if time > now + MAX_START_AHEAD);
    is_ahead.then(|| error(pointer.to_owned(), "must not be in the future".to_owned()))
}

fn definition_errors(request: &CreateConsumer) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if SERVICE_USERS.contains(&request.name.as_str()) {
        errors.push(error(
            "/name".to_owned(),
            "is the name of a user of the broker: choose another one".to_owned(),
        ));
    }
    if request.tenant_id.is_some() == request.all_tenants {
        let message = "send the tenant to read, or `all_tenants: true`";
        errors.push(error("/tenant_id".to_owned(), message.to_owned()));
    }
    for (field, value, max) in [
        ("/ack_wait_seconds", request.ack_wait_seconds, MAX_ACK_WAIT_SECONDS),
        ("/max_ack_pending", request.max_ack_pending, MAX_ACK_PENDING),
    ] {
        if value.is_some_and(|value| !(1..=max).contains(&value)) {
            errors.push(error(field.to_owned(), format!("must be 1 to {max}")));
        }
    }
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

fn consumer(
    durable: Durable,
    name: ConsumerName,
    oldest_unread: Option<Duration>,
    now: DateTime<Utc>,
) -> Consumer {
    let DurableDefinition { filter, start, ack_wait_seconds, max_ack_pending } = durable.definition;
    Consumer {
        name,
        tenant_id: filter.tenant_id,
        event_types: filter.event_types,
        partitions: filter.partitions,
        streams: durable.streams,
        created_at: durable.created_at,
        pending: durable.pending,
        ack_pending: durable.ack_pending,
        redelivered: durable.redelivered,
        oldest_unread_seconds: oldest_unread.map(|age| age.as_secs()),
        last_delivered_at: durable.last_delivered_at,
        last_acknowledged_at: durable.last_acknowledged_at,
        ack_wait_seconds: ack_wait_seconds.unwrap_or(DurableDefinition::ACK_WAIT_SECONDS),
        max_ack_pending: max_ack_pending.unwrap_or(DurableDefinition::MAX_ACK_PENDING),
        paused: durable.is_paused,
        suspension: durable.suspension.filter(|suspension| suspension.is_active(now)),
        start,
        filter_subjects: durable.filter_subjects,
    }
}
