//! What the relay reads from the outbox of all tenants.

use std::sync::Arc;

use database::outbox::{DELIVERY_TIMEOUT, Deliver, DeliveryError, OutboxMessage, Relay, RetryPolicy};
use service::Tasks;
use service::clock::SystemClock;
use service::telemetry::Metrics;
use testkit::wait_until;
use testsystem::TestSystem;

/// Nothing is due.
struct Nothing;

impl Deliver for Nothing {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        unreachable!("{row:?}")
    }
}

#[tokio::test]
async fn the_relay_shows_how_long_effects_wait_and_how_many_are_parked() {
    let system = TestSystem::start().await.unwrap();
    // Due in an hour, so that the system's own relay leaves them alone.
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at, dead_lettered_at)
            values
                (gen_random_uuid(), 'acme', 'x', '{}', now() - interval '10 minutes', now() + interval '1 hour', null),
                (gen_random_uuid(), 'globex', 'x', '{}', now(), now() + interval '1 hour', null),
                (gen_random_uuid(), 'acme', 'x', '{}', now() - interval '2 hours', now(), now())",
        )
        .await;
    let (metrics, tasks) = (Metrics::new("test"), Tasks::default());
    let relay = Relay {
        database: system.database.pool("svc_identity").unwrap().measured(&metrics, &tasks),
        kinds: &[],
        retry_policy: RetryPolicy::DeadLetter,
        timeout: DELIVERY_TIMEOUT,
        deliver: Nothing,
        clock: Arc::new(SystemClock),
    };
    tasks.spawn("relay", relay.run(tasks.clone()));
    let waiting = "svc_outbox_rows{schema=\"identity\",state=\"pending\"} 2\n";
    let text = wait_until("the gauges show the messages", async || {
        Some(metrics.text()).filter(|text| text.contains(waiting))
    })
    .await;
    assert!(text.contains("svc_outbox_rows{schema=\"identity\",state=\"dead_lettered\"} 1\n"), "{text}");
    let oldest = text
        .lines()
        .find_map(|line| line.strip_prefix("svc_outbox_oldest_age_seconds{schema=\"identity\"} "));
    let oldest: f64 = oldest.unwrap().parse().unwrap();
    assert!((600.0..660.0).contains(&oldest), "{oldest}");
    tasks.stopping().cancel();
}
