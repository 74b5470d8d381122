//! Compares the simulated outbox with the functions in Postgres: the same statements must have the same effect on the same rows.

use std::collections::BTreeSet;

use chrono::Utc;
use proptest::prelude::*;
use proptest::sample::Index;
use service::clock::SystemClock;
use sqlx::PgConnection;
use tenancy::OutboxId;
use testkit::TestDatabase;

use super::world::{Row, TENANTS, World};
use super::*;
use crate::Database;
use crate::outbox::queue::{Outcome, Settlement};
use crate::outbox::retry;

#[derive(Clone, Debug)]
enum Statement {
    Send { tenant: usize, kind: usize, delay: i64 },
    Claim { limit: usize, share: u16, after: usize, is_reversed: bool, lease: i64 },
    Settle { claims: Vec<(Index, State)>, delay: Option<i64> },
    Postpone { turns: BTreeSet<usize>, delay: i64 },
    Wait(i64),
}

fn statement() -> impl Strategy<Value = Statement> {
    let state = prop_oneof![
        Just(State::Delivered),
        Just(State::Retried),
        Just(State::Postponed),
        Just(State::DeadLettered)
    ];
    let claim = (1..9_usize, 1..4_u16, 0..=TENANTS.len(), any::<bool>(), 1..20_i64);
    prop_oneof![
        6 => (0..TENANTS.len(), 0..KINDS.len(), 0..10_i64)
            .prop_map(|(tenant, kind, delay)| Statement::Send { tenant, kind, delay }),
        4 => claim.prop_map(|(limit, share, after, is_reversed, lease)| {
            Statement::Claim { limit, share, after, is_reversed, lease }
        }),
        3 => (prop::collection::vec((any::<Index>(), state), 1..5), prop::option::of(0..20_i64))
            .prop_map(|(claims, delay)| Statement::Settle { claims, delay }),
        1 => (prop::collection::btree_set(0..TENANTS.len(), 1..3), 1..20_i64)
            .prop_map(|(turns, delay)| Statement::Postpone { turns, delay }),
        3 => (0..15_i64).prop_map(Statement::Wait),
    ]
}

/// A row without its fence, which is random.
type Comparable = (OutboxId, String, String, DateTime<Utc>, i32, bool, bool);

/// The simulated outbox, and the one in Postgres.
struct Both {
    world: World,
    database: Database,
    superuser: PgConnection,
    now: DateTime<Utc>,
    ids: u128,
    /// The same messages, as each of them returned it.
    claimed: Vec<[OutboxMessage; 2]>,
}

impl Both {
    fn after(&self, seconds: i64) -> DateTime<Utc> {
        self.now + TimeDelta::seconds(seconds)
    }

    async fn execute(&mut self, statement: Statement) {
        match statement {
            Statement::Send { tenant, kind, delay } => self.send(TENANTS[tenant], KINDS[kind], delay).await,
            Statement::Claim { limit, share, after, is_reversed, lease } => {
                let mut kinds = KINDS.to_vec();
                if is_reversed {
                    kinds.reverse();
                }
                let after = TENANTS.get(after).copied().unwrap_or_default();
                let claim = || Claim {
                    now: self.now,
                    lease_until: self.after(lease),
                    limit,
                    kinds: &kinds,
                    share,
                    after,
                };
                let stored = self.database.claim(claim()).await.unwrap();
                let simulated = self.world.claim(&claim());
                self.compare_claims(simulated, stored);
            }
            Statement::Settle { claims, delay } if !self.claimed.is_empty() => {
                self.settle(&claims, delay).await;
            }
            Statement::Settle { .. } => {}
            Statement::Postpone { turns, delay } => {
                let postponement = || Postponement {
                    turns: turns.iter().map(|turn| TENANTS[*turn]).collect(),
                    kinds: KINDS,
                    now: self.now,
                    until: Some(self.after(delay)),
                    error: None,
                };
                self.database.postpone(postponement()).await.unwrap();
                self.world.postpone(&postponement());
            }
            Statement::Wait(seconds) => self.now += TimeDelta::seconds(seconds),
        }
        assert_eq!(self.simulated(), self.stored().await);
        self.separate().await;
    }

    /// The order of messages that are due at the same time is not defined: makes each due some microseconds earlier.
    async fn separate(&mut self) {
        for (id, row) in &mut self.world.rows {
            let (micros, number) = (row.due_at.timestamp_micros(), i64::try_from(id.0.as_u128()).unwrap());
            let second = (micros + 999_999).div_euclid(1_000_000) * 1_000_000;
            row.due_at = DateTime::from_timestamp_micros(second - number).unwrap();
        }
        sqlx::query(
            "update session.outbox set due_at = date_trunc('second', due_at + interval '0.999999 seconds')
                - ('x' || right(outbox_id::text, 4))::bit(16)::integer * interval '1 microsecond'",
        )
        .execute(&mut self.superuser)
        .await
        .unwrap();
    }

    async fn send(&mut self, tenant: &'static str, kind: &'static str, delay: i64) {
        self.ids += 1;
        let id = OutboxId(Uuid::from_u128(self.ids));
        let due_at = self.after(delay);
        let row = Row { tenant, kind, due_at, attempts: 0, fence: None, dead_lettered: false };
        self.world.rows.insert(id, row);
        sqlx::query(
            "insert into session.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            values ($1, $2, $3, '{}', $4, $4)",
        )
        .bind(id)
        .bind(tenant)
        .bind(kind)
        .bind(due_at)
        .execute(&mut self.superuser)
        .await
        .unwrap();
    }

    fn compare_claims(&mut self, mut simulated: Vec<OutboxMessage>, mut stored: Vec<OutboxMessage>) {
        let facts = |message: &OutboxMessage| {
            let OutboxMessage { outbox_id, tenant_id, kind, attempts, turn, .. } = message;
            (*outbox_id, tenant_id.to_string(), kind.clone(), *attempts, turn.clone())
        };
        simulated.sort_by_key(|message| message.outbox_id);
        stored.sort_by_key(|message| message.outbox_id);
        assert_eq!(
            simulated.iter().map(facts).collect::<Vec<_>>(),
            stored.iter().map(facts).collect::<Vec<_>>()
        );
        self.claimed.extend(simulated.into_iter().zip(stored).map(|(simulated, stored)| [simulated, stored]));
    }

    /// Some of the claims have expired or are settled already. Each message is settled at most once.
    async fn settle(&mut self, claims: &[(Index, State)], delay: Option<i64>) {
        let due_at = delay.map(|delay| self.after(delay));
        let mut settled = BTreeSet::new();
        let [mut simulated, mut stored] = [Vec::new(), Vec::new()];
        for (index, state) in claims {
            let index = index.index(self.claimed.len());
            if !settled.insert(self.claimed[index][0].outbox_id) {
                continue;
            }
            let outcome = |message: &OutboxMessage| Outcome {
                message: message.clone(),
                settlement: Settlement { state: *state, due_at, error: None },
            };
            simulated.push(outcome(&self.claimed[index][0]));
            stored.push(outcome(&self.claimed[index][1]));
        }
        self.database.settle(&stored, self.now).await.unwrap();
        self.world.settle(&simulated);
    }

    fn simulated(&self) -> Vec<Comparable> {
        let comparable = |(id, row): (&OutboxId, &Row)| {
            let (tenant, kind) = (row.tenant.to_owned(), row.kind.to_owned());
            (*id, tenant, kind, row.due_at, row.attempts, row.fence.is_some(), row.dead_lettered)
        };
        self.world.rows.iter().map(comparable).collect()
    }

    async fn stored(&mut self) -> Vec<Comparable> {
        sqlx::query_as(
            "select outbox_id, tenant_id, kind, due_at, attempts, fence is not null, dead_lettered_at is not null
            from session.outbox order by outbox_id",
        )
        .fetch_all(&mut self.superuser)
        .await
        .unwrap()
    }
}

#[test]
fn the_simulated_outbox_has_the_semantics_of_the_functions_in_postgres() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = runtime.block_on(TestDatabase::create()).unwrap();
    let database = runtime.block_on(async { Database::new(&test.url("svc_session"), "session") }).unwrap();
    proptest!(ProptestConfig::with_cases(100), |(statements in prop::collection::vec(statement(), 1..40))| {
        runtime.block_on(async {
            let mut superuser = test.superuser().await.unwrap();
            let empty = "delete from session.outbox; delete from session.outbox_pauses";
            sqlx::raw_sql(empty).execute(&mut superuser).await.unwrap();
            let (world, database, now) = (World::default(), database.clone(), DateTime::UNIX_EPOCH);
            let mut both = Both { world, database, superuser, now, ids: 0, claimed: Vec::new() };
            for statement in statements {
                both.execute(statement).await;
            }
        });
    });
}

#[tokio::test]
async fn a_relay_with_a_clock_that_is_an_hour_ahead_delays_nothing_by_the_hour() {
    let test = TestDatabase::create().await.unwrap();
    let database = Database::new(&test.url("svc_session"), "session").unwrap();
    let mut superuser = test.superuser().await.unwrap();
    let insert = "insert into session.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        values (gen_random_uuid(), 'acme', 'usual', '{}', now(), now())";
    sqlx::raw_sql(insert).execute(&mut superuser).await.unwrap();
    let mut is_due_within_a_minute = async || -> bool {
        let latest = "select bool_and(due_at <= clock_timestamp() + interval '1 minute')
            from (select due_at from session.outbox union all select until from session.outbox_pauses) as times";
        sqlx::query_scalar(latest).fetch_one(&mut superuser).await.unwrap()
    };
    let ahead = SystemClock.now() + TimeDelta::hours(1);
    let later = ahead + TimeDelta::minutes(1);
    let claim = || Claim { now: ahead, lease_until: later, limit: 1, kinds: KINDS, share: 1, after: "" };
    let message = database.claim(claim()).await.unwrap().remove(0);
    assert!(is_due_within_a_minute().await, "the lease");
    assert!(database.claim(claim()).await.unwrap().is_empty(), "the message is leased");

    let settlement = Settlement { state: State::Retried, due_at: Some(later), error: None };
    database.settle(&[Outcome { message, settlement }], ahead).await.unwrap();
    assert!(is_due_within_a_minute().await, "the back-off");
    let turns = BTreeSet::from(["acme"]);
    let postponement = Postponement { turns, kinds: KINDS, now: ahead, until: Some(later), error: None };
    database.postpone(postponement).await.unwrap();
    assert!(is_due_within_a_minute().await, "the pause of the tenant");

    let dead_letter = "update session.outbox set dead_lettered_at = now()";
    sqlx::raw_sql(dead_letter).execute(&mut test.superuser().await.unwrap()).await.unwrap();
    assert_eq!(retry(&database, None, ahead).await.unwrap(), 1);
    assert!(is_due_within_a_minute().await, "the retry of a dead-lettered message");
}
