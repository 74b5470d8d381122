//! Rate limits on a real Postgres with a manual clock.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ratelimit::{Limit, Limiter, LimiterMetrics, LocalLimiter, Rate, RateLimitError, Source, source};
use service::Clock as _;
use service::clock::ManualClock;
use service::telemetry::Metrics;
use sqlx::Connection as _;
use testkit::{TestDatabase, wait_until};
use tower::ServiceExt as _;

struct Replicas {
    database: TestDatabase,
    clock: Arc<ManualClock>,
    metrics: Metrics,
}

impl Replicas {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000)));
        Self { database: TestDatabase::create().await.unwrap(), clock, metrics: Metrics::new("test") }
    }

    /// Returns the limiter of one replica. Replicas share only the database.
    fn replica(&self) -> Limiter {
        let database = self.database.pool("svc_identity").unwrap();
        Limiter::new("identity", database, self.clock.clone(), &self.metrics)
    }

    async fn run_sql(&self, statement: &'static str) {
        let mut superuser = self.database.superuser().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut superuser).await.unwrap();
        superuser.close().await.unwrap();
    }

    async fn rows(&self) -> i64 {
        let mut superuser = self.database.superuser().await.unwrap();
        sqlx::query_scalar("select count(*) from identity.limits").fetch_one(&mut superuser).await.unwrap()
    }
}

fn limit(rate: &str) -> Limit {
    Limit { name: "login", rate: Some(rate.parse().unwrap()) }
}

/// Counts a request that must be rejected, and returns its `retry_after`.
async fn rejected(limiter: &Limiter, limit: &Limit, subject: &str) -> Duration {
    match limiter.count(limit, subject).await.unwrap_err() {
        RateLimitError::Limited { retry_after } => retry_after,
        error @ RateLimitError::Unavailable(_) => panic!("{error:?}"),
    }
}

/// The rule without a store: the theoretical arrival times are in a map.
#[derive(Default)]
struct Model(HashMap<String, DateTime<Utc>>);

impl Model {
    fn count(&mut self, rate: &Rate, source: &Source, now: DateTime<Utc>) -> Result<(), Duration> {
        for network in source.networks() {
            let arrival = self.0.entry(network.name.clone()).or_insert(now);
            let lead = (*arrival - now).to_std().unwrap_or_default();
            let lead = network.rule(rate).decide(lead, network.interval(rate))?;
            *arrival = now + TimeDelta::from_std(lead).unwrap();
        }
        Ok(())
    }
}

async fn compare_with_model(
    replicas: &Replicas,
    rate: &str,
    requests: &[(i64, IpAddr)],
) -> Result<(), TestCaseError> {
    let limit = limit(rate);
    let rate = limit.rate.unwrap();
    // The rows of the last case have no effect any more.
    replicas.clock.advance(TimeDelta::days(1));
    let mut model = Model::default();
    let memory = LocalLimiter::new(limit, replicas.clock.clone(), LimiterMetrics::new(&replicas.metrics));
    let retry_after = |error| match error {
        RateLimitError::Limited { retry_after } => retry_after,
        error @ RateLimitError::Unavailable(_) => panic!("{error:?}"),
    };
    let database = replicas.database.pool("svc_identity").unwrap();
    for (micros, address) in requests {
        replicas.clock.advance(TimeDelta::microseconds(*micros));
        let source = source(*address);
        let expected = model.count(&rate, &source, replicas.clock.now());
        // A replica without a request before, which remembers no rejection.
        let postgres = Limiter::new("identity", database.clone(), replicas.clock.clone(), &replicas.metrics);
        prop_assert_eq!(postgres.count(&limit, &source).await.map_err(retry_after), expected);
        prop_assert_eq!(memory.check_and_count(&source).map_err(retry_after), expected);
    }
    Ok(())
}

#[test]
fn both_stores_decide_as_the_rule() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let replicas = runtime.block_on(Replicas::new());
    let rate = (1..8_u32, prop_oneof!["s", "min", "h"]).prop_map(|(count, unit)| format!("{count}/{unit}"));
    let address = prop_oneof![
        Just("192.0.2.1".parse().unwrap()),
        (0..2_u128, 0..6_u128).prop_map(|(site, subnet)| {
            IpAddr::from((0x2001_0db8_u128 << 96 | site << 72 | subnet << 64 | 1).to_be_bytes())
        }),
    ];
    let micros = prop_oneof![Just(0), 0..2_000_000_i64, 0..600_000_000_i64];
    let requests = prop::collection::vec((micros, address), 1..60);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(32));
    let compare = |(rate, requests): (String, Vec<_>)| {
        runtime.block_on(compare_with_model(&replicas, &rate, &requests))
    };
    runner.run(&(rate, requests), compare).unwrap();
}

#[tokio::test]
async fn a_count_in_a_transaction_has_no_effect_if_it_is_rolled_back_or_refunded() {
    let replicas = Replicas::new().await;
    let (limit, limiter, subject) = (limit("1/h"), replicas.replica(), Source::from("192.0.2.1"));
    let mut connection = replicas.database.superuser().await.unwrap();
    sqlx::raw_sql("begin").execute(&mut connection).await.unwrap();
    limiter.count_in(&mut connection, &limit, &subject).await.unwrap();
    limiter.count_in(&mut connection, &limit, &subject).await.unwrap_err();
    sqlx::raw_sql("rollback; begin").execute(&mut connection).await.unwrap();
    limiter.count_in(&mut connection, &limit, &subject).await.unwrap();
    limiter.refund_in(&mut connection, &limit, &subject).await.unwrap();
    sqlx::raw_sql("commit; begin").execute(&mut connection).await.unwrap();
    limiter.count_in(&mut connection, &limit, &subject).await.unwrap();
    sqlx::raw_sql("commit").execute(&mut connection).await.unwrap();
    rejected(&replicas.replica(), &limit, "192.0.2.1").await;
}

#[tokio::test]
async fn replicas_share_one_limit() {
    let replicas = Replicas::new().await;
    let (limit, here, there) = (limit("4/min"), replicas.replica(), replicas.replica());
    for limiter in [&here, &there, &there, &here] {
        limiter.count(&limit, "192.0.2.1").await.unwrap();
    }
    for limiter in [&here, &there] {
        assert_eq!(rejected(limiter, &limit, "192.0.2.1").await, Duration::from_secs(15));
    }
    here.count(&limit, "192.0.2.2").await.unwrap();
    here.count(&Limit { name: "reset", ..limit }, "192.0.2.1").await.unwrap();
}

#[tokio::test]
async fn allows_one_request_after_retry_after_and_none_before() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("4/min"), replicas.replica());
    for _ in 0..4 {
        limiter.count(&limit, "192.0.2.1").await.unwrap();
    }
    let wait = TimeDelta::from_std(rejected(&limiter, &limit, "192.0.2.1").await).unwrap();
    replicas.clock.advance(wait - TimeDelta::microseconds(1));
    assert_eq!(rejected(&limiter, &limit, "192.0.2.1").await, Duration::from_micros(1));
    replicas.clock.advance(TimeDelta::microseconds(1));
    limiter.count(&limit, "192.0.2.1").await.unwrap();
    assert_eq!(rejected(&limiter, &limit, "192.0.2.1").await, Duration::from_secs(15));
    // After an idle hour, the whole burst is available again, but not more.
    replicas.clock.advance(TimeDelta::hours(1));
    for _ in 0..4 {
        limiter.count(&limit, "192.0.2.1").await.unwrap();
    }
    rejected(&limiter, &limit, "192.0.2.1").await;
}

#[tokio::test]
async fn concurrent_requests_do_not_exceed_the_burst() {
    let replicas = Replicas::new().await;
    let (limit, limiters) = (limit("7/h"), [replicas.replica(), replicas.replica()]);
    let clients = (0..4).map(|n| {
        let limiter = &limiters[n % 2];
        async move {
            let mut allowed = 0;
            for _ in 0..10 {
                match limiter.count(&limit, "192.0.2.1").await {
                    Ok(()) => allowed += 1,
                    Err(RateLimitError::Limited { .. }) => {}
                    Err(error @ RateLimitError::Unavailable(_)) => panic!("{error:?}"),
                }
            }
            allowed
        }
    });
    let allowed: Vec<usize> = testkit::join_all(clients).await;
    assert_eq!(allowed.iter().sum::<usize>(), 7);
}

#[tokio::test]
async fn a_rejected_subject_needs_no_statement_until_retry_after() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("1/min"), replicas.replica());
    limiter.count(&limit, "192.0.2.1").await.unwrap();
    rejected(&limiter, &limit, "192.0.2.1").await;
    replicas.run_sql("alter table identity.limits rename to gone").await;
    assert_eq!(rejected(&limiter, &limit, "192.0.2.1").await, Duration::from_mins(1));
    assert!(matches!(limiter.count(&limit, "192.0.2.2").await, Err(RateLimitError::Unavailable(_))));
    replicas.clock.advance(TimeDelta::minutes(1));
    assert!(matches!(limiter.count(&limit, "192.0.2.1").await, Err(RateLimitError::Unavailable(_))));
}

/// The result of a request that presents a secret.
#[derive(Debug)]
enum Wrong {
    Secret,
    /// The secret was not verified.
    Unverified,
    Limit,
}

impl From<RateLimitError> for Wrong {
    fn from(_: RateLimitError) -> Self {
        Self::Limit
    }
}

/// Presents a secret after a pause in which others do the same.
async fn present(
    limiter: &Limiter,
    limit: &Limit,
    address: &str,
    result: Result<(), Wrong>,
) -> Result<(), Wrong> {
    let lookup = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        result
    };
    let source = source(address.parse().unwrap());
    limiter.count_wrong(limit, source, lookup, |wrong| matches!(wrong, Wrong::Secret)).await
}

#[tokio::test]
async fn only_wrong_secrets_count() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("2/h"), replicas.replica());
    for address in ["192.0.2.1", "2001:db8::1"] {
        let present = async |result| present(&limiter, &limit, address, result).await;
        for _ in 0..3 {
            present(Ok(())).await.unwrap();
            assert!(matches!(present(Err(Wrong::Unverified)).await, Err(Wrong::Unverified)));
        }
        for _ in 0..2 {
            assert!(matches!(present(Err(Wrong::Secret)).await, Err(Wrong::Secret)));
        }
        // Also the right one, so that an attacker cannot continue to guess.
        assert!(matches!(present(Ok(())).await, Err(Wrong::Limit)));
    }
}

#[tokio::test]
async fn valid_secrets_at_the_same_time_do_not_exceed_the_limit() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("2/h"), replicas.replica());
    let all = (0..30).map(|_| present(&limiter, &limit, "192.0.2.1", Ok(())));
    let results: Vec<_> = testkit::join_all(all).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test]
async fn wrong_secrets_at_the_same_time_do_not_exceed_the_limit() {
    let replicas = Replicas::new().await;
    let (limit, limiters) = (limit("7/h"), [replicas.replica(), replicas.replica()]);
    let guesses = (0..40).map(|n| present(&limiters[n % 2], &limit, "192.0.2.1", Err(Wrong::Secret)));
    let results: Vec<_> = testkit::join_all(guesses).await;
    assert_eq!(
        results.iter().filter(|result| matches!(result, Err(Wrong::Secret))).count(),
        7,
        "{results:?}"
    );
}

/// Polls a lookup of a source while another one does not end. Fails if it waits.
async fn present_during_another(
    limiter: &Limiter,
    limit: &Limit,
    meanwhile: impl Future<Output = ()>,
) -> Result<(), Wrong> {
    let source = || source("192.0.2.1".parse().unwrap());
    let started = Cell::new(false);
    let endless = async {
        started.set(true);
        std::future::pending().await
    };
    let first = std::pin::pin!(limiter.count_wrong(limit, source(), endless, |_: &Wrong| true));
    let second = async {
        wait_until("the first lookup runs", async || started.get().then_some(())).await;
        meanwhile.await;
        let lookup = std::future::ready(Ok(()));
        let second = std::pin::pin!(limiter.count_wrong(limit, source(), lookup, |_: &Wrong| true));
        let without_waiting = async { panic!("the second lookup waits") };
        tokio::select! { biased; result = second => result, () = without_waiting => Ok(()) }
    };
    tokio::select! { result = first => result, result = second => result }
}

#[tokio::test]
async fn lookups_of_one_source_without_a_limit_do_not_wait_for_each_other() {
    let replicas = Replicas::new().await;
    let off = Limit { name: "login", rate: None };
    present_during_another(&replicas.replica(), &off, async {}).await.unwrap();
}

#[tokio::test]
async fn a_rejected_source_does_not_wait_for_a_lookup() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("1/h"), replicas.replica());
    let reject = async { _ = rejected(&limiter, &limit, "192.0.2.1").await };
    let result = present_during_another(&limiter, &limit, reject).await;
    assert!(matches!(result, Err(Wrong::Limit)), "{result:?}");
}

#[tokio::test]
async fn the_networks_of_an_ipv6_address_have_wider_limits() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("2/h"), replicas.replica());
    let count = async |address: String| limiter.count(&limit, source(address.parse().unwrap())).await.is_ok();
    // Each /64 allows 2 requests, a /56 allows 8, a /48 allows 32.
    let mut allowed = Vec::new();
    for subnet in 0..5_u16 {
        for site in 0..6_u16 {
            for _ in 0..3 {
                allowed.push(count(format!("2001:db8:1:{:x}::1", site << 8 | subnet)).await);
            }
        }
    }
    assert_eq!(allowed.iter().filter(|allowed| **allowed).count(), 32);
    assert!(count("2001:db8:2:1::1".to_owned()).await, "another /48 has its own limit");
    assert!(count("192.0.2.1".to_owned()).await);
}

#[tokio::test]
async fn a_source_above_its_limit_does_not_use_up_the_limit_of_its_network() {
    let replicas = Replicas::new().await;
    let limit = limit("1/h");
    for n in 0..20 {
        // A replica that has rejected a source does not count it again.
        let counted = replicas.replica().count(&limit, source("2001:db8::1".parse().unwrap())).await;
        assert_eq!(counted.is_ok(), n == 0);
    }
    for subnet in 1..4 {
        let neighbour = format!("2001:db8:0:{subnet}::1").parse().unwrap();
        replicas.replica().count(&limit, source(neighbour)).await.unwrap();
    }
    let fifth = "2001:db8:0:4::1".parse().unwrap();
    replicas.replica().count(&limit, source(fifth)).await.unwrap_err();
}

#[tokio::test]
async fn a_valid_secret_counts_in_no_network() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("1/h"), replicas.replica());
    for n in 0..40 {
        present(&limiter, &limit, &format!("2001:db8:0:{n:x}::1"), Ok(())).await.unwrap();
    }
}

#[tokio::test]
async fn a_disabled_limit_counts_nothing() {
    let replicas = Replicas::new().await;
    let limiter = replicas.replica();
    let off = Limit { name: "login", rate: None };
    for _ in 0..100 {
        limiter.count(&off, "192.0.2.1").await.unwrap();
    }
    assert_eq!(replicas.rows().await, 0);
    assert!(!replicas.metrics.text().contains("svc_limiter_decisions_total{"));
}

#[tokio::test]
async fn purges_expired_rows() {
    let replicas = Replicas::new().await;
    let limiter = replicas.replica();
    replicas
        .run_sql(
            "insert into identity.limits select 'login', n::text, to_timestamp(0), true from generate_series(1, 2500) as n",
        )
        .await;
    limiter.count(&limit("1/h"), "192.0.2.1").await.unwrap();
    limiter.purge_once().await.unwrap();
    assert_eq!(replicas.rows().await, 1);
    replicas.clock.advance(TimeDelta::hours(1));
    limiter.purge_once().await.unwrap();
    assert_eq!(replicas.rows().await, 0);
}

#[tokio::test]
async fn a_router_counts_its_requests_in_memory_except_those_that_handlers_count() {
    let replicas = Replicas::new().await;
    let router = Router::new()
        .route("/api/v1/auth/sessions", get(async || "sessions"))
        .route("/api/v1/auth/password/login", post(async || "login"));
    let router = replicas.replica().wrap(limit("2/h"), router);
    let send = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    for _ in 0..3 {
        assert_eq!(send("POST", "/api/v1/auth/password/login").await, 200);
    }
    let mut statuses = Vec::new();
    for path in ["/api/v1/auth/sessions", "/unknown", "/api/v1/auth/sessions"] {
        statuses.push(send("GET", path).await);
    }
    assert_eq!(statuses, [200, 404, 429]);
    assert_eq!(replicas.rows().await, 0);
}

#[tokio::test]
async fn counts_every_decision() {
    let replicas = Replicas::new().await;
    let (limit, limiter) = (limit("1/min"), replicas.replica());
    limiter.count(&limit, "192.0.2.1").await.unwrap();
    for _ in 0..3 {
        rejected(&limiter, &limit, "192.0.2.1").await;
    }
    replicas.run_sql("revoke all on identity.limits from svc_identity").await;
    limiter.count(&limit, "192.0.2.2").await.unwrap_err();
    let text = replicas.metrics.text();
    for line in [
        r#"svc_limiter_decisions_total{limit="login",decision="allowed"} 1"#,
        r#"svc_limiter_decisions_total{limit="login",decision="rejected"} 3"#,
        r#"svc_limiter_decisions_total{limit="login",decision="unavailable"} 1"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}
