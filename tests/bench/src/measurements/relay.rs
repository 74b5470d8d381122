//! How fast the relay delivers audit events from the outbox to the broker.

use std::time::{Duration, Instant};

use bus::{AuditSubject, Message};
use chrono::DateTime;
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use uuid::Uuid;

use super::Bench;
use crate::events::publish_baseline;
use crate::load::per_second;
use crate::report::Comparison;

const MESSAGES: usize = 20_000;
const TENANTS: usize = 100;
const ROUNDS: usize = 3;
/// The number of messages of the relay that wait for the broker.
const IN_FLIGHT: usize = 200;
const POLL: Duration = Duration::from_millis(20);
const NAME: &str = "session_revoked";

impl Bench<'_> {
    pub(crate) async fn relay(&mut self) -> anyhow::Result<()> {
        let database = PgPool::connect(&self.system.run_file.database_url).await?;
        let client = bus::connect(&bus::Config::new(&*self.system.run_file.audit_nats_url, "bench")).await?;
        let broker = async_nats::jetstream::new(client);
        let mut rounds = Vec::new();
        for _ in 0..self.rounds(ROUNDS) {
            let relayed = deliver(&database).await?;
            let messages = (0..MESSAGES).map(message).collect::<anyhow::Result<_>>()?;
            let published = publish_baseline(&broker, messages, IN_FLIGHT, 1).await?;
            rounds.push((per_second(MESSAGES, relayed), per_second(MESSAGES, published)));
        }
        self.report.add_comparison(Comparison {
            name: "audit events from the outbox, per second",
            baseline: "async-nats, same number of messages",
            rounds,
            target: None,
        });
        Ok(())
    }
}

/// Inserts messages and waits until the relay has delivered them. Returns the time from its first claim.
async fn deliver(database: &PgPool) -> anyhow::Result<Duration> {
    sqlx::query(
        "insert into session.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        select gen_random_uuid(), 'relay-' || number % $1, 'audit', $2, clock_timestamp(), clock_timestamp() from generate_series(1, $3) as number",
    )
    .bind(i32::try_from(TENANTS)?)
    .bind(json!({ "name": NAME, "occurred_at": DateTime::UNIX_EPOCH, "event": event() }))
    .bind(i32::try_from(MESSAGES)?)
    .execute(database)
    .await?;
    wait_until(database, "select exists (select from session.outbox where fence is not null)").await?;
    let started = Instant::now();
    wait_until(database, "select not exists (select from session.outbox where kind = 'audit')").await?;
    Ok(started.elapsed())
}

async fn wait_until(database: &PgPool, condition: &'static str) -> anyhow::Result<()> {
    while !sqlx::query_scalar::<_, bool>(condition).fetch_one(database).await? {
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// The message that the relay publishes for a row.
fn message(number: usize) -> anyhow::Result<Message> {
    let tenant = format!("relay-{}", number % TENANTS).parse()?;
    let id = Uuid::now_v7().to_string();
    let mut event = event();
    event["id"] = json!(id);
    event["context"] = json!("session");
    event["occurred_at"] = json!(DateTime::UNIX_EPOCH);
    event["tenant_id"] = json!(tenant);
    let subject = AuditSubject::new(Some(&tenant), "session", NAME)?;
    Ok(Message::audit(&subject, &id, None, event.to_string().into())?)
}

fn event() -> Value {
    json!({
        "event": NAME, "actor": { "type": "system" }, "user_id": Uuid::nil(), "session_id": Uuid::nil(), "credential": "00000000",
    })
}
