//! Dead letters of consumers, for the platform administrator, and quarantined items, also for the administrators of their tenant.

use bus::{DeadLetters, PublishError, QUARANTINE};
use contract::consumers::{
    ConsumerName, DeadLetter, DeadLetterSequences, HandledDeadLetters, MAX_DEAD_LETTER_SEQUENCES,
};
use contract::internal::IngestChange;
use contract::{Page, ProblemKind};
use data_encoding::BASE64;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, TenantId};
use tokio::time::Instant;

use super::changes::Changes;
use super::consumers::problem;
use super::{App, Numbers, PUBLISH_TIMEOUT, problem_kind, unavailable};

/// A page ends when its events exceed this size.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

impl App {
    /// Returns a page of the dead letters of a consumer, of one tenant or of all, the oldest first.
    ///
    /// # Errors
    /// 404 for an unknown consumer, 503 without the broker.
    pub(crate) async fn list_dead_letters(
        &self,
        consumer: &ConsumerName,
        tenant_id: Option<&TenantId>,
        paging: &Paging<u64>,
    ) -> Result<Page<DeadLetter>, Problem> {
        let stored = self.dead_letters(consumer).await?;
        page(&stored, tenant_id, consumer.as_str(), paging, &Numbers::PLAIN).await
    }

    /// Returns a page of the quarantined items of one tenant or of all, the oldest first.
    ///
    /// # Errors
    /// 503 without the broker.
    pub(crate) async fn list_quarantined(
        &self,
        tenant_id: Option<&TenantId>,
        paging: &Paging<u64>,
        numbers: &Numbers,
    ) -> Result<Page<DeadLetter>, Problem> {
        page(&self.stored_dead_letters()?, tenant_id, QUARANTINE, paging, numbers).await
    }

    /// Returns a quarantined item of one tenant or of any, with its bytes.
    ///
    /// # Errors
    /// 404 for an unknown number, 503 without the broker.
    pub(crate) async fn get_quarantined(
        &self,
        tenant_id: Option<&TenantId>,
        sequence: u64,
        numbers: &Numbers,
    ) -> Result<DeadLetter, Problem> {
        let stored = self.stored_dead_letters()?;
        let found = stored.get(tenant_id, QUARANTINE, numbers.open(sequence)).await.map_err(unavailable)?;
        let found = found.ok_or(ProblemKind::NotFound)?;
        let mut letter = DeadLetter { sequence, ..dead_letter(&found) };
        if let Some(details) = &mut letter.quarantine {
            details.payload = Some(BASE64.encode(&found.payload));
        }
        Ok(letter)
    }

    /// Deletes quarantined items of one tenant or of any.
    ///
    /// # Errors
    /// 422 for too many numbers, 503 without the broker or an audit event: the request can be repeated.
    pub(crate) async fn delete_quarantined(
        &self,
        tenant_id: Option<&TenantId>,
        actor: Actor,
        sequences: &[u64],
        numbers: &Numbers,
    ) -> Result<HandledDeadLetters, Problem> {
        check_number_of(sequences)?;
        let stored = self.stored_dead_letters()?;
        let mut changes = Changes::new(self, actor, IngestChange::QuarantinedDeleted, None);
        let result = delete(&stored, tenant_id, sequences, numbers, &mut changes).await?;
        tracing::info!(tenant_id = tenant_id.map(TenantId::as_str), ?result, "quarantined items deleted");
        Ok(result)
    }

    /// Stores dead letters as events again and deletes them.
    ///
    /// # Errors
    /// 404 for an unknown consumer, 422 for too many numbers, 503 without the broker or an audit event: the request can be repeated.
    pub(crate) async fn replay_dead_letters(
        &self,
        consumer: &ConsumerName,
        DeadLetterSequences { sequences, tenant_id: requested }: &DeadLetterSequences,
    ) -> Result<HandledDeadLetters, Problem> {
        check_number_of(sequences)?;
        let stored = self.dead_letters(consumer).await?;
        let Some(durable) = self.durables().await?.get(consumer.as_str()).await.map_err(problem)? else {
            // All other consumers would skip the events.
            return Err(
                Problem::new(ProblemKind::NotFound).detail("The consumer does not exist. Create it first.")
            );
        };
        // An earlier consumer of this name can have had another tenant.
        let tenant_id = durable.definition.filter.tenant_id;
        let change = IngestChange::DeadLettersReplayed;
        let mut changes = Changes::new(self, Actor::PlatformAdmin, change, Some(consumer));
        let mut result = HandledDeadLetters::default();
        for &sequence in sequences {
            let found =
                stored.get(tenant_id.as_ref(), consumer.as_str(), sequence).await.map_err(unavailable)?;
            let found =
                found.filter(|it| requested.as_ref().is_none_or(|requested| *requested == it.tenant_id));
            let replay = found.and_then(|letter| Some((letter.replay().ok()?, letter)));
            let Some((message, letter)) = replay else {
                result.skipped.push(sequence);
                continue;
            };
            changes.record(&letter.tenant_id).await?;
            let deadline = Instant::now() + PUBLISH_TIMEOUT;
            let published = self.publisher.publish(&letter.tenant_id, message, deadline).await;
            if let Err(PublishError::Misconfigured { .. }) = published {
                result.skipped.push(sequence);
                continue;
            }
            published.map_err(|error| Problem::new(problem_kind(&error)))?;
            stored.delete(&letter).await.map_err(unavailable)?;
            result.handled.push(sequence);
        }
        tracing::info!(%consumer, ?result, "dead letters replayed");
        Ok(result)
    }

    /// Deletes dead letters.
    ///
    /// # Errors
    /// 404 for an unknown consumer, 422 for too many numbers, 503 without the broker or an audit event: the request can be repeated.
    pub(crate) async fn delete_dead_letters(
        &self,
        consumer: &ConsumerName,
        DeadLetterSequences { sequences, tenant_id }: &DeadLetterSequences,
    ) -> Result<HandledDeadLetters, Problem> {
        check_number_of(sequences)?;
        let stored = self.dead_letters(consumer).await?;
        let change = IngestChange::DeadLettersDeleted;
        let mut changes = Changes::new(self, Actor::PlatformAdmin, change, Some(consumer));
        let result = delete(&stored, tenant_id.as_ref(), sequences, &Numbers::PLAIN, &mut changes).await?;
        tracing::info!(%consumer, ?result, "dead letters deleted");
        Ok(result)
    }

    fn stored_dead_letters(&self) -> Result<DeadLetters, Problem> {
        DeadLetters::over(&self.nats, self.streams).map_err(unavailable)
    }

    /// Returns the dead letters.
    ///
    /// # Errors
    /// 404 if the consumer does not exist and has no dead letters, 503 without the broker.
    async fn dead_letters(&self, consumer: &ConsumerName) -> Result<DeadLetters, Problem> {
        let stored = self.stored_dead_letters()?;
        let first = stored.first_from(None, consumer.as_str(), 0).await.map_err(unavailable)?;
        if first.is_none() && !self.has_consumer(consumer).await? {
            return Err(ProblemKind::NotFound.into());
        }
        Ok(stored)
    }
}

async fn page(
    stored: &DeadLetters,
    tenant_id: Option<&TenantId>,
    consumer: &str,
    paging: &Paging<u64>,
    numbers: &Numbers,
) -> Result<Page<DeadLetter>, Problem> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    let mut from = paging.after.map_or(0, |after| numbers.open(after)).saturating_add(1);
    while let Some(found) = stored.first_from(tenant_id, consumer, from).await.map_err(unavailable)? {
        if bytes > MAX_PAGE_BYTES {
            return Ok(Page { items, next_cursor: Some(paging.cursor(numbers.seal(from - 1))) });
        }
        (from, bytes) = (found.sequence + 1, bytes + found.payload.len());
        items.push(DeadLetter { sequence: numbers.seal(found.sequence), ..dead_letter(&found) });
        if items.len() > paging.limit() {
            break;
        }
    }
    Ok(paging.page(items, |letter| letter.sequence))
}

/// Deletes dead letters of the consumer of the changes, or quarantined items.
async fn delete(
    stored: &DeadLetters,
    tenant_id: Option<&TenantId>,
    sequences: &[u64],
    numbers: &Numbers,
    changes: &mut Changes<'_>,
) -> Result<HandledDeadLetters, Problem> {
    let consumer = changes.consumer().map_or(QUARANTINE, ConsumerName::as_str);
    let mut result = HandledDeadLetters::default();
    for &sequence in sequences {
        match stored.get(tenant_id, consumer, numbers.open(sequence)).await.map_err(unavailable)? {
            Some(letter) => {
                changes.record(&letter.tenant_id).await?;
                stored.delete(&letter).await.map_err(unavailable)?;
                result.handled.push(sequence);
            }
            None => result.skipped.push(sequence),
        }
    }
    Ok(result)
}

fn check_number_of(sequences: &[u64]) -> Result<(), Problem> {
    if (1..=MAX_DEAD_LETTER_SEQUENCES).contains(&sequences.len()) {
        return Ok(());
    }
    let message = format!("must have 1 to {MAX_DEAD_LETTER_SEQUENCES} items");
    Err(Problem::new(ProblemKind::ValidationFailed).field("/sequences", "invalid_value", message))
}

fn dead_letter(letter: &bus::DeadLetter) -> DeadLetter {
    let text = |text: Option<&str>| text.map(str::to_owned);
    DeadLetter {
        sequence: letter.sequence,
        tenant_id: letter.tenant_id.clone(),
        source_id: letter.source_id(),
        event_id: text(letter.event_id()),
        event_type: text(letter.event_type()),
        failed_at: letter.failed_at,
        reason: text(letter.reason()),
        attempts: letter.attempts(),
        event: event(&letter.payload),
        quarantine: letter.quarantine(),
    }
}

/// Returns a stored event with its bytes, on one line, so that it can be sent again. The response is JSON for every parser.
fn event(payload: &[u8]) -> Box<RawValue> {
    if payload.is_empty() {
        return RawValue::NULL.to_owned();
    }
    let text = String::from_utf8_lossy(payload);
    let is_json = serde_json::from_slice::<Value>(payload).is_ok();
    // Strings in JSON have no line breaks.
    let json =
        if is_json { RawValue::from_string(text.replace(['\n', '\r'], " ")) } else { to_raw_value(&text) };
    json.unwrap_or_else(|_| RawValue::NULL.to_owned())
}
