//! The audit events of identity and session, read back from the broker.

use async_nats::jetstream;
use contract::Role;
use contract::device::DeviceCodes;
use hashing::TokenDigest;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use testkit::wait_until;
use testsystem::TestSystem;

/// Returns all audit events with their subjects, oldest first, after the outbox is empty.
async fn events(system: &TestSystem) -> Vec<(String, Value)> {
    system.wait_for_empty_outbox().await;
    events_in(system, "AUDIT").await
}

async fn events_in(system: &TestSystem, stream: &str) -> Vec<(String, Value)> {
    let client = system.nats.connect("audit-administrator").await.unwrap();
    let mut stream = jetstream::new(client).get_stream(stream).await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut events = Vec::new();
    for sequence in 1..=last {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let event: Value = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(message.headers.get("Nats-Msg-Id").unwrap().as_str(), event["id"]);
        events.push((message.subject.to_string(), event));
    }
    // Relays publish concurrently; the ids give the order of the changes.
    events.sort_by_key(|(_, event)| event["id"].to_string());
    events
}

/// Returns the events of one subject.
pub(super) async fn of(system: &TestSystem, subject: &str) -> Vec<Value> {
    events(system).await.into_iter().filter(|(under, _)| under == subject).map(|(_, event)| event).collect()
}

#[tokio::test]
async fn changes_of_tenants_users_and_credentials_are_audited_with_their_actor() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let user = format!("/users/{}", member.user.user_id);
    admin.client.patch(&user, &json!({ "role": "admin" })).await.expect::<Value>(200);
    admin.client.patch(&user, &json!({ "status": "disabled" })).await.expect::<Value>(200);
    let (key, _) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    for _ in 0..2 {
        admin.client.delete(&format!("/api-keys/{}", key.id)).await.expect_empty(204);
    }
    let suspended = json!({ "status": "suspended" });
    for _ in 0..2 {
        system.platform_admin().patch("/tenants/acme", &suspended).await.expect::<Value>(200);
    }

    let administrator = json!({ "type": "user", "user_id": admin.user.user_id });
    let (bob, operator) = (json!(member.user.user_id), json!({ "type": "platform_admin" }));
    let changed = of(&system, "audit.v1.acme.identity.privilege_permissions_changed").await;
    assert_eq!(changed.len(), 1);
    let expected = json!({
        "id": changed[0]["id"], "occurred_at": changed[0]["occurred_at"], "context": "identity", "tenant_id": "acme",
        "event": "privilege_permissions_changed", "about": "admin", "actor": administrator, "user_id": bob,
        "ip": "127.0.0.1"
    });
    assert_eq!(changed[0], expected);
    let updated = of(&system, "audit.v1.acme.identity.user_updated").await;
    assert_eq!((&updated[0]["about"], &updated[0]["user_id"]), (&json!("disabled"), &bob));
    let invited = of(&system, "audit.v1.acme.identity.authn_token_created").await;
    let by: Vec<_> = invited.iter().map(|event| event["actor"].clone()).collect();
    assert_eq!(by, [operator.clone(), administrator.clone()]);
    for name in ["authn_token_created", "authn_token_revoked"] {
        let keys = of(&system, &format!("audit.v1.acme.session.{name}")).await;
        assert_eq!(keys.len(), 1, "{name}");
        assert_eq!((&keys[0]["actor"], &keys[0]["key_id"]), (&administrator, &json!(key.id)), "{name}");
    }
    let admin_events = of(&system, "audit.v1.acme.identity.authz_admin").await;
    let about: Vec<_> = admin_events.iter().map(|event| event["about"].as_str().unwrap()).collect();
    assert_eq!(about, ["tenant_created", "tenant_suspended"]);
    assert!(admin_events.iter().all(|event| event["actor"] == operator));
    let sessions = of(&system, "audit.v1.acme.session.session_created").await;
    assert_eq!(sessions.len(), 2);
    assert_eq!((&sessions[1]["user_id"], &sessions[1]["ip"]), (&bob, &json!("127.0.0.1")));
}

#[tokio::test]
async fn requests_that_change_nothing_are_not_audited() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let own = member.client.clone().header("X-User-ID", &member.user.user_id.to_string());
    let before = events(&system).await.len();
    for _ in 0..20 {
        own.delete("/auth/sessions?keep_current=true").await.expect_empty(204);
    }
    let user = format!("/users/{}", member.user.user_id);
    admin.client.patch(&user, &json!({ "role": "member", "status": "active" })).await.expect::<Value>(200);
    let tenant = json!({ "status": "active", "display_name": "acme" });
    system.platform_admin().patch("/tenants/acme", &tenant).await.expect::<Value>(200);
    assert_eq!(events(&system).await.len(), before);

    system.log_in("acme", &member.user.email).await;
    let before = events(&system).await.len();
    for _ in 0..2 {
        own.delete("/auth/sessions?keep_current=true").await.expect_empty(204);
    }
    assert_eq!(events(&system).await.len(), before + 1, "a revoked session is audited");
}

#[tokio::test]
async fn every_event_of_a_public_request_names_the_address_of_the_client() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let (key, _) = system.create_api_key(&admin, &json!({ "name": "firewalls" })).await;
    admin.client.delete(&format!("/api-keys/{}", key.id)).await.expect_empty(204);
    let reset = json!({ "email": member.user.email });
    system
        .client()
        .header("X-Tenant-ID", "acme")
        .post("/auth/password/reset", &reset)
        .await
        .expect_empty(204);
    let mail = system.wait_for_mail(&member.user.email).await;
    let token = mail.split_whitespace().find(|word| word.starts_with("svc_pr_")).unwrap();
    let confirm = json!({ "token": token, "new_password": "another-horse-battery-9" });
    system.client().post("/auth/password/reset/confirm", &confirm).await.expect_empty(204);
    let user = format!("/users/{}", member.user.user_id);
    admin.client.patch(&user, &json!({ "status": "disabled" })).await.expect::<Value>(200);
    system
        .platform_admin()
        .patch("/tenants/acme", &json!({ "status": "suspended" }))
        .await
        .expect::<Value>(200);
    let events = events(&system).await;
    assert!(events.len() > 10);
    let of_reset = |(_, event): &&(String, Value)| event["about"] == json!("password_reset");
    let (_, reset) = events.iter().find(of_reset).unwrap();
    assert_eq!([&reset["event"], &reset["actor"]["type"]], ["authn_token_created", "anonymous"]);
    assert_eq!(reset["user_id"], json!(member.user.user_id));
    for (subject, event) in events {
        assert_eq!(event["ip"], json!("127.0.0.1"), "{subject}");
    }
}

#[tokio::test]
async fn password_attempts_and_revoked_sessions_are_audited() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let user_id = json!(admin.user.user_id);
    let log_in = async |tenant_id: &str, email: &str| {
        let body = json!({ "email": email, "password": "not-the-password-9" });
        let client = system.client().header("X-Tenant-ID", tenant_id);
        client.post("/auth/password/login", &body).await.expect_problem(401, "login_failed");
    };
    log_in("acme", &admin.user.email).await;
    log_in("acme", "unknown@acme.example").await;
    log_in("nowhere", "unknown@acme.example").await;
    let change = json!({ "current_password": testkit::PASSWORD, "new_password": "another-horse-battery-9" });
    let own = admin.client.clone().header("X-User-ID", &admin.user.user_id.to_string());
    own.post("/auth/password/change", &change).await.expect_empty(204);
    let raw = system.client().header("X-Session-ID", admin.session.session_id.expose());
    for _ in 0..2 {
        raw.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    }

    let failed = of(&system, "audit.v1.acme.identity.authn_login_fail").await;
    let about: Vec<_> = failed.iter().map(|event| event["user_id"].clone()).collect();
    assert_eq!(about, [user_id.clone(), Value::Null]);
    assert!(failed.iter().all(|event| event["actor"] == json!({ "type": "anonymous" })));
    let [(subject, nowhere)] = &events_in(&system, "AUDIT_ANONYMOUS").await[..] else { panic!("one event") };
    assert_eq!(subject, "audit.anonymous.v1.identity.authn_login_fail", "without the unknown tenant");
    assert_eq!((&nowhere["tenant_id"], &nowhere["count"]), (&Value::Null, &json!(1)));
    let succeeded = of(&system, "audit.v1.acme.identity.authn_login_success").await;
    assert_eq!((succeeded.len(), &succeeded[0]["user_id"]), (1, &user_id));
    let created = of(&system, "audit.v1.acme.identity.user_created").await;
    assert_eq!((created.len(), &created[0]["about"]), (1, &json!("admin")));
    let changed = of(&system, "audit.v1.acme.identity.authn_password_change").await;
    assert_eq!((changed.len(), &changed[0]["about"]), (1, &json!("change")));
    let ended = of(&system, "audit.v1.acme.session.authn_token_revoked").await;
    assert_eq!((ended.len(), &ended[0]["user_id"]), (1, &user_id), "repeated requests are audited once");
}

#[tokio::test]
async fn repeated_failures_are_one_event_per_source_and_account() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let before = events(&system).await.len();
    let log_in = async |tenant_id: &str, email: &str| {
        let body = json!({ "email": email, "password": "not-the-password-9" });
        let client = system.client().header("X-Tenant-ID", tenant_id);
        client.post("/auth/password/login", &body).await.expect_problem(401, "login_failed");
    };
    for number in 0..8 {
        log_in("acme", &admin.user.email).await;
        log_in("acme", &format!("unknown{number}@acme.example")).await;
        log_in(&format!("nowhere{}", number % 2), "ada@nowhere.example").await;
    }
    let failed = of(&system, "audit.v1.acme.identity.authn_login_fail").await;
    let summary: Vec<_> =
        failed.iter().map(|event| (event["user_id"].clone(), event["count"].clone())).collect();
    assert_eq!(summary, [(json!(admin.user.user_id), json!(8)), (Value::Null, json!(8))]);
    assert_eq!(
        events(&system).await.len(),
        before + 2,
        "failures at unknown tenants do not use the stream of tenants"
    );
    let anonymous = events_in(&system, "AUDIT_ANONYMOUS").await;
    let counts: Vec<_> = anonymous.iter().map(|(_, event)| event["count"].clone()).collect();
    assert_eq!(counts, [json!(4), json!(4)]);

    // A failure after the publication starts the next event.
    log_in("acme", &admin.user.email).await;
    assert_eq!(of(&system, "audit.v1.acme.identity.authn_login_fail").await[2]["count"], json!(1));
}

#[tokio::test]
async fn failures_of_many_sources_at_one_account_are_a_bounded_number_of_events() {
    let variables = [("SVC_TRUSTED_PROXIES", "127.0.0.0/8")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let log_in = async |address: usize, email: &str| {
        let address = format!("2001:db8:{address:x}::1");
        let client = system.client().header("X-Tenant-ID", "acme").header("X-Forwarded-For", &address);
        let body = json!({ "email": email, "password": "not-the-password-9" });
        client.post("/auth/password/login", &body).await.expect_problem(401, "login_failed");
    };
    for address in 0..30 {
        log_in(address, &admin.user.email).await;
        log_in(address, &format!("unknown-{address}@acme.example")).await;
    }
    for address in [3, 20, 25, 25] {
        log_in(address, &admin.user.email).await;
    }
    let failed = of(&system, "audit.v1.acme.identity.authn_login_fail").await;
    let of_user = |user_id: Value| {
        let events = failed.iter().filter(|event| event["user_id"] == user_id);
        events.map(|event| (event["count"].as_u64().unwrap(), event["sources"].as_u64().unwrap())).collect()
    };
    let mut expected = vec![(1, 1); 10];
    expected.push((20, 20));
    let unknown: Vec<_> = of_user(Value::Null);
    assert_eq!(unknown, expected);
    (expected[3], expected[10]) = ((2, 1), (23, 20));
    let known: Vec<_> = of_user(json!(admin.user.user_id));
    assert_eq!(known, expected);
    assert!(failed.iter().all(|event| event.get("members").is_none()), "{failed:?}");
}

#[tokio::test]
async fn many_events_of_one_tenant_are_published_without_a_failed_attempt() {
    let system = TestSystem::start().await.unwrap();
    system.create_tenant("acme").await;
    let insert = r#"insert into session.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        select gen_random_uuid(), 'acme', 'audit',
            '{"name": "session_created", "occurred_at": "2026-01-31T12:00:00Z", "event": {}}', now(), now()
        from generate_series(1, 1000)"#;
    system.run_sql(insert).await;
    let state = "select count(*), count(*) filter (where last_error is not null) from session.outbox";
    let mut connection = system.database.superuser().await.unwrap();
    let failed = wait_until("all are published, or one has failed", async || {
        let (waiting, failed): (i64, i64) = sqlx::query_as(state).fetch_one(&mut connection).await.unwrap();
        (waiting == 0 || failed > 0).then_some(failed)
    })
    .await;
    assert_eq!(failed, 0);
}

/// Returns how many events of the tenant `acme` wait in a schema, and how many of them were attempted, if the relay has paused their turn.
async fn blocked(connection: &mut PgConnection, schema: &str, events: &str) -> Option<(i64, i64)> {
    let statement = format!(
        "select count(*), count(*) filter (where attempts > 0), count(*) filter (where fence is not null), count(pause)
        from {schema}.outbox left join {schema}.outbox_pauses as pause using (kind, turn)
        where tenant_id = 'acme' and {events} and coalesce(pause.error, '') like '%share of the stream%'"
    );
    let state = sqlx::query_as(AssertSqlSafe(statement)).fetch_one(connection).await;
    let (waiting, attempted, claimed, paused): (i64, i64, i64, i64) = state.unwrap();
    (paused > 0 && claimed == 0).then_some((waiting, attempted))
}

async fn waiting(connection: &mut PgConnection) -> i64 {
    let statement = "select count(*) from session.outbox where tenant_id = 'acme'";
    sqlx::query_scalar(statement).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn a_tenant_fills_a_quarter_of_the_stream_and_does_not_delay_other_tenants() {
    // The stream of audit events has an eighth: 2 MiB. The share of a tenant is 512 KiB.
    let system = TestSystem::start_with(&[("SVC_STREAM_MAX_BYTES", "16MiB")]).await.unwrap();
    let (_, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    events(&system).await;
    let insert = r#"insert into session.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        select gen_random_uuid(), 'acme', 'audit',
            '{"name": "session_created", "occurred_at": "2026-01-31T12:00:00Z", "event": {}}', now(), now()
        from generate_series(1, 4000)"#;
    system.run_sql(insert).await;
    let mut connection = system.database.superuser().await.unwrap();
    let (blocked, attempted) =
        wait_until("the share is used", async || blocked(&mut connection, "session", "true").await).await;
    assert!(attempted <= 500, "blocking a tenant changes no row that waits: {attempted} of {blocked}");
    let client = system.nats.connect("audit-administrator").await.unwrap();
    let mut stream = jetstream::new(client).get_stream("AUDIT").await.unwrap();
    let bytes = stream.info().await.unwrap().state.bytes;
    // 250 messages, of 0.5 KiB each, can be in flight when the messages are counted.
    assert!((500 * 1024..660 * 1024).contains(&bytes), "{bytes}");

    system.log_in("other", &other.user.email).await;
    let subject = "audit.v1.other.session.session_created";
    wait_until("the event of the other tenant is published", async || {
        let events = events_in(&system, "AUDIT").await;
        (events.iter().filter(|(found, _)| found == subject).count() == 2).then_some(())
    })
    .await;
    assert_eq!(waiting(&mut connection).await, blocked);

    // An administrator of the broker makes space.
    stream.purge().filter("audit.v1.acme.session.session_created").await.unwrap();
    wait_until("events that waited are published", async || {
        let end_of_pause = "delete from session.outbox_pauses;
            update session.outbox set due_at = now() where due_at > now() + interval '1 minute'";
        system.run_sql(end_of_pause).await;
        (waiting(&mut connection).await < blocked).then_some(())
    })
    .await;
}

#[tokio::test]
async fn failed_logins_fill_half_of_the_share_of_a_tenant_and_do_not_delay_its_other_events() {
    // The stream of audit events has 4 MiB. The share of a tenant is 1 MiB.
    let system = TestSystem::start_with(&[("SVC_STREAM_MAX_BYTES", "32MiB")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = json!({ "email": admin.user.email, "password": "not-the-password-9" });
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/login", &body).await.expect_problem(401, "login_failed");
    // The same failure from 4,000 addresses.
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            select gen_random_uuid(), tenant_id, kind, payload, now(), now()
            from identity.outbox, generate_series(1, 4000)
            where payload->>'name' = 'authn_login_fail'",
        )
        .await;
    let mut connection = system.database.superuser().await.unwrap();
    let failures = "fold_key is null and payload->>'name' = 'authn_login_fail'";
    wait_until("the share of failures is used", async || {
        blocked(&mut connection, "identity", failures).await
    })
    .await;
    let client = system.nats.connect("audit-administrator").await.unwrap();
    let mut stream = jetstream::new(client).get_stream("AUDIT").await.unwrap();
    let bytes = stream.info().await.unwrap().state.bytes;
    // 250 messages, of 0.5 KiB each, can be in flight when the messages are counted.
    assert!((500 * 1024..660 * 1024).contains(&bytes), "half of the share: {bytes}");
    let patch = json!({ "display_name": "Acme" });
    system.platform_admin().patch("/tenants/acme", &patch).await.expect::<Value>(200);
    let subject = "audit.v1.acme.identity.authz_admin";
    wait_until("the change of the tenant is published", async || {
        let events = events_in(&system, "AUDIT").await;
        (events.iter().filter(|(found, _)| found == subject).count() == 2).then_some(())
    })
    .await;
}

/// Lets 1,000 messages of a kind wait for the tenant `acme`, as many as `SVC_AUDIT_MAX_WAITING` permits, and counts them as the relays do.
async fn fill(system: &TestSystem, schema: &str, kind: &str) {
    let insert = format!(
        r#"insert into {schema}.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
        select gen_random_uuid(), 'acme', '{kind}', '{{"name": "test"}}', now(), now() + interval '1 day'
        from generate_series(1, 1000)"#
    );
    system.run_sql(&insert).await;
    count_waiting(system).await;
}

async fn count_waiting(system: &TestSystem) {
    for schema in ["identity", "session"] {
        let kinds = "array['audit', 'audit_failure', 'audit_anonymous']";
        system.run_sql(&format!("select * from {schema}.outbox_stats(now(), {kinds}, 1000)")).await;
    }
}

#[tokio::test]
async fn a_tenant_with_too_many_waiting_events_changes_nothing_except_to_end_something() {
    let system = TestSystem::start_with(&[("SVC_AUDIT_MAX_WAITING", "1000")]).await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let (key, _) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    for schema in ["identity", "session"] {
        fill(&system, schema, "audit").await;
    }

    let client = system.client().header("X-Tenant-ID", "acme");
    let login = json!({ "email": admin.user.email, "password": testkit::PASSWORD });
    let rejected = client.post("/auth/password/login", &login).await;
    let problem = rejected.expect_problem(503, "dependency_unavailable");
    assert!(problem.detail.contains("audit events of the tenant wait"), "{}", problem.detail);
    for (path, body) in [
        ("/users/invite", json!({ "email": "eve@acme.example", "role": "member" })),
        ("/api-keys", json!({ "name": "another", "scopes": ["events:write"] })),
    ] {
        admin.client.post(path, &body).await.expect_problem(503, "dependency_unavailable");
    }
    let bob_path = format!("/users/{}", bob.user.user_id);
    let promoted = admin.client.patch(&bob_path, &json!({ "role": "admin" })).await;
    promoted.expect_problem(503, "dependency_unavailable");

    let own = bob.client.header("X-User-ID", &bob.user.user_id.to_string());
    own.delete("/auth/sessions").await.expect_empty(204);
    let disabled = json!({ "status": "disabled", "revoke_api_keys": true });
    admin.client.patch(&bob_path, &disabled).await.expect::<Value>(200);
    let enabled = json!({ "status": "active" });
    admin.client.patch(&bob_path, &enabled).await.expect_problem(503, "dependency_unavailable");
    admin.client.delete(&format!("/api-keys/{}", key.id)).await.expect_empty(204);
    admin.client.delete(&bob_path).await.expect_empty(204);
    let renamed = json!({ "display_name": "Acme" });
    system.platform_admin().patch("/tenants/acme", &renamed).await.expect::<Value>(200);
    system.log_in("other", &other.user.email).await;

    system.run_sql("delete from identity.outbox where payload ->> 'name' = 'test'").await;
    system.run_sql("delete from session.outbox where payload ->> 'name' = 'test'").await;
    count_waiting(&system).await;
    system.log_in("acme", &admin.user.email).await;
    let events = events(&system).await;
    for (name, subject) in [
        ("a user was disabled", "audit.v1.acme.identity.user_updated"),
        ("a user was deleted", "audit.v1.acme.identity.user_deleted"),
        ("the key was revoked", "audit.v1.acme.session.authn_token_revoked"),
    ] {
        assert!(events.iter().any(|(found, _)| found == subject), "{name}");
    }
}

#[tokio::test]
async fn too_many_waiting_failures_are_one_event_and_reject_no_login() {
    let system = TestSystem::start_with(&[("SVC_AUDIT_MAX_WAITING", "1000")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    fill(&system, "identity", "audit_failure").await;
    let client = system.client().header("X-Tenant-ID", "acme");
    for email in [&*admin.user.email, "unknown@acme.example", "other@acme.example"] {
        let login = json!({ "email": email, "password": "not-the-password-9" });
        client.post("/auth/password/login", &login).await.expect_problem(401, "login_failed");
    }
    system.log_in("acme", &admin.user.email).await;
    system.run_sql("delete from identity.outbox where payload ->> 'name' = 'test'").await;
    let failed = of(&system, "audit.v1.acme.identity.authn_login_fail").await;
    let counted: Vec<_> =
        failed.iter().map(|event| (&event["count"], event.get("user_id"), event.get("ip"))).collect();
    assert_eq!(counted, [(&json!(3), None, None)]);
}

#[tokio::test]
async fn device_approvals_and_denials_are_audited_with_the_client_address() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let device = system.client().header("X-Tenant-ID", "acme");
    for (decision, name) in [("approve", "authn_token_created"), ("deny", "authn_token_revoked")] {
        let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
        let decide = json!({ "user_code": codes.user_code, "decision": decision });
        admin.client.post("/auth/device/decide", &decide).await.expect_empty(204);
        let audited = of(&system, &format!("audit.v1.acme.session.{name}")).await;
        let user_id = admin.user.user_id;
        let expected = json!({
            "id": audited[0]["id"], "occurred_at": audited[0]["occurred_at"], "context": "session", "tenant_id": "acme",
            "event": name, "about": "device_grant", "actor": { "type": "user", "user_id": user_id },
            "user_id": user_id, "ip": "127.0.0.1",
            "credential": TokenDigest::from_text(codes.device_code.expose()).prefix()
        });
        assert_eq!(audited, [expected]);
    }
}

#[tokio::test]
async fn audit_events_contain_no_tokens_and_only_permitted_personal_data() {
    let system = TestSystem::start_with(&[("SVC_AUDIT_PERSONAL", "none")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let text = format!("{:?}", events(&system).await);
    assert!(text.contains("session_created"), "{text}");
    for kept_out in [admin.session.session_id.expose(), &*admin.user.email, "127.0.0.1", "svc_iv_"] {
        assert!(!text.contains(kept_out), "{kept_out} is in {text}");
    }
}

#[tokio::test]
async fn audit_events_are_published_after_a_broker_outage() {
    let mut system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.nats.stop();
    system.add_user(&admin, "bob@acme.example", Role::Member).await;
    system.nats.restart().await.unwrap();
    let sessions = of(&system, "audit.v1.acme.session.session_created").await;
    assert_eq!(sessions.len(), 2, "one before the broker went away, one while it was away");
}

#[tokio::test]
async fn changes_of_the_policy_of_factors_and_a_right_password_that_stops_at_the_factor_are_audited() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let change = async |patch: Value| {
        system.platform_admin().patch("/tenants/acme", &patch).await.expect::<Value>(200);
    };
    let require = async |policy: &str| change(json!({ "second_factor": policy })).await;
    let log_in = async |password: &str| {
        let client = system.client().header("X-Tenant-ID", "acme");
        let body = json!({ "email": "admin@acme.example", "password": password });
        client.post("/auth/password/login", &body).await.status
    };
    require("everyone").await;
    assert_eq!((log_in(testkit::PASSWORD).await, log_in("wrong-password-altogether").await), (403, 401));
    // Without a change, nothing is recorded.
    require("everyone").await;
    require("optional").await;
    for permitted in [false, false, true] {
        change(json!({ "passkey_login": permitted })).await;
    }
    let about =
        |events: Vec<Value>| events.into_iter().map(|event| event["about"].clone()).collect::<Vec<_>>();
    let changes = of(&system, "audit.v1.acme.identity.authz_admin").await;
    let expected = [
        "tenant_created",
        "second_factor_everyone",
        "second_factor_optional",
        "passkey_login_off",
        "passkey_login_on",
    ];
    assert_eq!(about(changes), expected);
    let stopped = of(&system, "audit.v1.acme.identity.authn_login_challenge").await;
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert_eq!(stopped[0]["about"], "second_factor_setup");
    assert_eq!(stopped[0]["user_id"], json!(admin.user.user_id));
    assert_eq!(of(&system, "audit.v1.acme.identity.authn_login_success").await.len(), 1);
}
