//! The order of mails: resets and notices before invites, tenants in turns, slow recipients next to others.

use contract::Role;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use testkit::{MailServer, wait_until};
use testsystem::{TestSystem, TestUser};

use super::{invite, system};

/// Requests a reset of the administrator of a tenant.
async fn request_reset(system: &TestSystem, tenant_id: &str) {
    request_reset_of(system, tenant_id, &format!("admin@{tenant_id}.example")).await;
}

async fn request_reset_of(system: &TestSystem, tenant_id: &str, email: &str) {
    let client = system.client().header("X-Tenant-ID", tenant_id);
    client.post("/auth/password/reset", &json!({ "email": email })).await.expect_empty(204);
}

async fn invite_many(admin: &TestUser, name: &str, count: usize) {
    for n in 1..=count {
        invite(admin, &format!("{name}-{n}@{}.example", admin.user.tenant_id)).await;
    }
}

fn recipients(mails: &[Value]) -> Vec<&str> {
    mails.iter().map(|mail| mail["to"][0].as_str().unwrap()).collect()
}

/// Waits until the mail server has received the data of a mail to the address.
async fn wait_for_attempt(server: &MailServer, email: &str) {
    wait_until("the mail server has an attempt", async || (server.attempts(email) == 1).then_some(())).await;
}

#[tokio::test]
async fn a_reset_is_mailed_before_the_queued_invites_of_another_tenant() {
    let server = MailServer::start("none").await.unwrap();
    let (system, alpha) = system(&server, &[]).await;
    let _beta = system.create_tenant("beta").await;
    invite_many(&alpha, "slow", 119).await;
    wait_for_attempt(&server, "slow-1@acme.example").await;
    request_reset(&system, "beta").await;
    // The mail server has not accepted any invite yet.
    let mails = server.wait_for_mails(1).await;
    assert_eq!(recipients(&mails), ["admin@beta.example"]);
    assert_eq!(mails[0]["headers"][2], json!(["Subject", "svc: Reset your password"]));
    server.release_slow_mails();
    server.wait_for_mails(120).await;
}

#[tokio::test]
async fn slow_recipients_of_one_tenant_do_not_delay_the_invites_of_another() {
    let server = MailServer::start("none").await.unwrap();
    let (system, alpha) = system(&server, &[("SVC_SMTP_CONNECTIONS", "4")]).await;
    let beta = system.create_tenant("beta").await;
    invite_many(&alpha, "slow", 8).await;
    wait_for_attempt(&server, "slow-2@acme.example").await;
    invite_many(&beta, "ada", 8).await;
    let mails = server.wait_for_mails(8).await;
    assert!(recipients(&mails).iter().all(|email| email.ends_with("@beta.example")), "{mails:?}");
    // Half of the connections.
    let attempts: usize = (1..=8).map(|n| server.attempts(&format!("slow-{n}@acme.example"))).sum();
    assert_eq!(attempts, 2);
    server.release_slow_mails();
    server.wait_for_mails(16).await;
}

#[tokio::test]
async fn tenants_with_queued_invites_take_turns() {
    let server = MailServer::start("none").await.unwrap();
    let (system, alpha) = system(&server, &[("SVC_SMTP_CONNECTIONS", "1")]).await;
    let (beta, gamma) = (system.create_tenant("beta").await, system.create_tenant("gamma").await);
    // The only connection is in use while the others are queued.
    invite(&alpha, "slow@acme.example").await;
    wait_for_attempt(&server, "slow@acme.example").await;
    for (admin, count) in [(&alpha, 5), (&beta, 2), (&gamma, 1)] {
        invite_many(admin, "ada", count).await;
    }
    server.release_slow_mails();
    let mails = server.wait_for_mails(9).await;
    assert_eq!(
        recipients(&mails),
        [
            "slow@acme.example",
            "ada-1@beta.example",
            "ada-1@gamma.example",
            "ada-1@acme.example",
            "ada-2@beta.example",
            "ada-2@acme.example",
            "ada-3@acme.example",
            "ada-4@acme.example",
            "ada-5@acme.example",
        ]
    );
}

/// Claims as a relay and returns the tenants and payloads in the order of the claim.
async fn claim(system: &TestSystem, kinds: &[&str], limit: i32, share: i32, after: &str) -> Vec<String> {
    let mut connection = system.database.superuser().await.unwrap();
    claim_on(&mut connection, kinds, limit, share, after).await
}

async fn claim_on(
    connection: &mut PgConnection,
    kinds: &[&str],
    limit: i32,
    share: i32,
    after: &str,
) -> Vec<String> {
    let rows = sqlx::query(
        "select * from identity.outbox_claim(gen_random_uuid(), now(), now() + interval '1 minute', $1, $2, $3, $4)",
    )
    .bind(limit)
    .bind(kinds)
    .bind(share)
    .bind(after)
    .fetch_all(connection)
    .await
    .unwrap();
    rows.iter().map(|row| format!("{}{}", row.get::<String, _>(1), row.get::<Value, _>(3))).collect()
}

#[tokio::test]
async fn a_claim_takes_the_kinds_in_order_and_the_tenants_in_turns_up_to_their_share() {
    let system = TestSystem::start().await.unwrap();
    for tenant_id in ["a", "b", "c"] {
        system.create_tenant(tenant_id).await;
    }
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            select gen_random_uuid(), tenant_id, kind, to_jsonb(n), now(), now() - interval '1 hour' + make_interval(secs => n)
            from (values ('a', 'test_first', 3), ('b', 'test_first', 1), ('c', 'test_second', 2)) as test (tenant_id, kind, count),
                generate_series(1, count) as n",
        )
        .await;
    let kinds = ["test_first", "test_second"];
    assert_eq!(claim(&system, &kinds, 0, 2, "").await, [] as [&str; 0]);
    // After `a`, it is the turn of `b`; `a` follows in the next round.
    assert_eq!(claim(&system, &kinds, 2, 2, "a").await, ["b1", "a1"]);
    assert_eq!(claim(&system, &kinds, 9, 2, "a").await, ["a2", "c1", "c2"], "`a` has two leases");
    assert_eq!(claim(&system, &kinds, 9, 3, "c").await, ["a3"]);
    assert_eq!(claim(&system, &kinds, 9, 9, "").await, [] as [&str; 0], "every message is leased");
    // An expired lease does not count.
    system
        .run_sql("update identity.outbox set due_at = now() - interval '1 second' where payload = '1'")
        .await;
    assert_eq!(
        claim(&system, &kinds, 9, 2, "b").await,
        ["b1", "c1"],
        "`a` has two leases that are not expired"
    );
}

#[tokio::test]
async fn a_claim_that_was_planned_for_an_empty_table_reads_few_of_many_messages() {
    let system = TestSystem::start().await.unwrap();
    for tenant_id in ["a", "b"] {
        system.create_tenant(tenant_id).await;
    }
    let database = system.database.pool("svc_identity").unwrap();
    let mut connection = database.pool().acquire().await.unwrap();
    assert_eq!(claim_on(&mut connection, &["test"], 5, 9, "a").await, [] as [&str; 0]);
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            select gen_random_uuid(), 'b', 'test', '{}', now(), now() - make_interval(secs => n)
            from generate_series(1, 20000) as n",
        )
        .await;
    // The last turn is before the one with the messages, and slots are left.
    for (limit, share) in [(5, 9), (9, 5)] {
        sqlx::raw_sql("begin").execute(&mut *connection).await.unwrap();
        let claimed = claim_on(&mut connection, &["test"], limit, share, "a").await;
        assert_eq!(claimed.len(), 5);
        let (scans, rows): (i64, i64) = sqlx::query_as(
            "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relid = 'identity.outbox'::regclass",
        )
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        assert!(scans == 0 && rows < 100, "{scans} scans of the table, {rows} rows");
        sqlx::raw_sql("rollback").execute(&mut *connection).await.unwrap();
    }
}

/// Executes a statement, rolls it back, and returns how many pages of tables and indexes Postgres read for it.
async fn pages(connection: &mut PgConnection, statement: &str) -> i64 {
    sqlx::raw_sql("begin").execute(&mut *connection).await.unwrap();
    let explain = format!("explain (analyze, buffers, format json) {statement}");
    let plan: Value = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_one(&mut *connection).await.unwrap();
    sqlx::raw_sql("rollback").execute(connection).await.unwrap();
    let blocks = |kind: &str| plan[0]["Plan"][kind].as_i64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

#[tokio::test]
async fn the_pause_of_a_tenant_reads_as_few_pages_for_200000_waiting_messages_as_for_1000() {
    let system = TestSystem::start().await.unwrap();
    for tenant_id in ["a", "b"] {
        system.create_tenant(tenant_id).await;
    }
    let wait = async |tenant_id: &str, count: usize| {
        let insert = format!(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            select gen_random_uuid(), '{tenant_id}', 'test', '{{}}', now(), now() - make_interval(secs => n)
            from generate_series(1, {count}) as n"
        );
        system.run_sql(&insert).await;
    };
    wait("b", 1).await;
    let claim = "select * from identity.outbox_claim(
        gen_random_uuid(), now(), now() + interval '1 minute', 9, array['test'], 5, ''
    )";
    let postpone = "select identity.outbox_postpone(array['a'], array['test'], now(), now() + interval '1 minute', 'blocked')";
    let mut connection = system.database.superuser().await.unwrap();
    for count in [1_000, 199_000] {
        wait("a", count).await;
        for (name, pauses) in [("first claim", 0), ("claim during the pause", 1)] {
            let pause = format!("delete from identity.outbox_pauses; {}", postpone.repeat(pauses));
            system.run_sql(&pause).await;
            for (statement, name) in [(claim, name), (postpone, "pause")] {
                // The first execution also reads the catalog of the database.
                pages(&mut connection, statement).await;
                let read = pages(&mut connection, statement).await;
                assert!(read < 1_000, "{name}: {read} pages after {count} more messages");
            }
        }
    }
    assert_eq!(claim_on(&mut connection, &["test"], 9, 5, "").await, ["b{}"], "`a` is paused");
}

#[tokio::test]
async fn a_claim_passes_messages_that_another_relay_claims_now() {
    let system = TestSystem::start().await.unwrap();
    for tenant_id in ["a", "b"] {
        system.create_tenant(tenant_id).await;
    }
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            select gen_random_uuid(), tenant_id, 'test', to_jsonb(n), now(), now() - interval '1 hour' + make_interval(secs => n)
            from (values ('a', 2), ('b', 1)) as test (tenant_id, count), generate_series(1, count) as n",
        )
        .await;
    let mut locking = system.database.superuser().await.unwrap();
    sqlx::raw_sql("begin; select from identity.outbox where tenant_id = 'a' for update")
        .execute(&mut locking)
        .await
        .unwrap();
    assert_eq!(claim(&system, &["test"], 1, 9, "").await, ["b1"], "after the turn of `a`");
    assert_eq!(claim(&system, &["test"], 9, 9, "").await, [] as [&str; 0]);
    sqlx::raw_sql("rollback").execute(&mut locking).await.unwrap();
    assert_eq!(claim(&system, &["test"], 9, 9, "").await, ["a1", "a2"]);
}

#[tokio::test]
async fn resets_of_made_up_tenants_and_accounts_share_one_turn() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_RESET", "off")]).await.unwrap();
    let beta = system.create_tenant("beta").await;
    let disabled = system.add_user(&beta, "disabled@beta.example", Role::Member).await;
    let disable = json!({ "status": "disabled" });
    beta.client.patch(&format!("/users/{}", disabled.user.user_id), &disable).await.expect::<Value>(200);
    // Stops the relay.
    system.run_sql("revoke execute on function identity.outbox_claim from svc_identity").await;
    for n in 0..20 {
        request_reset(&system, &format!("a-made-up-{n}")).await;
        request_reset(&system, &format!("z-made-up-{n}")).await;
        request_reset_of(&system, "beta", &format!("made-up-{n}@beta.example")).await;
    }
    request_reset_of(&system, "beta", "disabled@beta.example").await;
    request_reset(&system, "beta").await;
    let claimed = claim(&system, &["mail_reset"], 2, 2, "").await;
    assert!(claimed[0].starts_with("a-made-up-0"), "{claimed:?}");
    assert!(claimed[1].contains("admin@beta.example"), "one of each turn: {claimed:?}");
    let claimed = claim(&system, &["mail_reset"], 100, 2, "beta").await;
    assert!(
        claimed.len() == 1 && claimed[0].starts_with("z-made-up-0"),
        "two leases of the shared turn: {claimed:?}"
    );
}

#[tokio::test]
async fn a_mail_is_delivered_while_the_relay_waits_for_its_next_claim() {
    let server = MailServer::start("none").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    invite(&admin, "slow@acme.example").await;
    wait_for_attempt(&server, "slow@acme.example").await;
    // In new connections, the claim of this relay waits for a lock without limit.
    system
        .run_sql(
            "do $$ begin
                execute format('alter role svc_identity in database %I set lock_timeout = 0', current_database());
                execute format('alter role svc_identity in database %I set statement_timeout = 0', current_database());
            end $$;
            select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and usename = 'svc_identity';
            alter function identity.outbox_claim rename to outbox_claim_at_once;
            create function identity.outbox_claim(uuid, timestamptz, timestamptz, integer, kinds text[], integer, text)
            returns table (outbox_id uuid, tenant_id text, kind text, payload jsonb, attempts integer, fence uuid, turn text)
            language plpgsql security definer set search_path = '' as $$ begin
                if 'mail_invite' = any(kinds) then
                    perform pg_advisory_xact_lock_shared(1);
                end if;
                return query select * from identity.outbox_claim_at_once($1, $2, $3, $4, $5, $6, $7);
            end $$",
        )
        .await;
    let mut locking = system.database.superuser().await.unwrap();
    sqlx::raw_sql("begin; select pg_advisory_xact_lock(1)").execute(&mut locking).await.unwrap();
    let mut observer = system.database.superuser().await.unwrap();
    let mut waits_until = async |condition: &'static str| {
        wait_until(condition, async || {
            let waits = "select exists (
                select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'
            )";
            let waits = sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut observer).await.unwrap();
            let holds = sqlx::query_scalar::<_, bool>(condition).fetch_one(&mut observer).await.unwrap();
            (waits && holds).then_some(())
        })
        .await;
    };
    waits_until("select exists (select from identity.outbox where kind = 'mail_invite')").await;
    server.release_slow_mails();
    waits_until("select not exists (select from identity.outbox where kind = 'mail_invite')").await;
    sqlx::raw_sql("rollback").execute(&mut locking).await.unwrap();
    system.wait_for_empty_outbox().await;
}
