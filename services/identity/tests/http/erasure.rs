//! Deleted users and tenants: their credentials, their personal data, and what remains.

use async_nats::jetstream;
use contract::audit::AuditRecord;
use contract::identity::{Invite, Tenant, User};
use contract::{Page, Role};
use serde_json::{Value, json};
use tenancy::{Actor, UserId};
use testkit::{PASSWORD, wait_until};
use testsystem::{TestSystem, TestUser};

async fn delete(by: &TestUser, user_id: UserId) -> u16 {
    by.client.delete(&format!("/users/{user_id}")).await.status
}

/// Rows of the tables with counted logins.
async fn counted_logins(system: &TestSystem) -> i64 {
    let count = "select (select count(*) from identity.login_attempts) + (select count(*) from identity.login_failures)";
    sqlx::query_scalar(count).fetch_one(&mut system.database.superuser().await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn deleting_a_user_revokes_all_credentials_and_erases_all_personal_data() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, foreign) = system.create_api_key(&admin, &json!({ "name": "foreign" })).await;
    let before = counted_logins(&system).await;
    let ada = system.add_user(&admin, "Ada@acme.example", Role::Admin).await;
    let user_id = ada.user.user_id;
    let (_, key) = system.create_api_key(&ada, &json!({ "name": "own" })).await;
    let laptop = system.client().header("X-Tenant-ID", "acme").header("User-Agent", "ada-laptop");
    for password in [PASSWORD, "not-the-password-9"] {
        let login = json!({ "email": "ada@acme.example", "password": password });
        laptop.post("/auth/password/login", &login).await;
    }
    let change = json!({ "current_password": "not-the-password-9", "new_password": "another-password-9" });
    let change_as = ada.client.clone().header("X-User-ID", &user_id.to_string());
    change_as.post("/auth/password/change", &change).await.expect_problem(401, "login_failed");
    system.wait_for_empty_outbox().await;
    system
        .run_sql(
            r#"insert into identity.outbox
                (outbox_id, tenant_id, kind, payload, erased_with_email, created_at, due_at, dead_lettered_at, last_error)
            values (
                gen_random_uuid(), 'acme', 'mail_reset', '{"email_key": "ada@acme.example"}', 'ada@acme.example', now(), now(),
                now(), ''
            )"#,
        )
        .await;
    system
        .run_sql(&format!(
            "insert into identity.outbox
                (outbox_id, tenant_id, kind, payload, erased_with_users, created_at, due_at, dead_lettered_at, last_error)
            values (
                gen_random_uuid(), 'acme', 'mail_notice', '{{}}', array['{user_id}'::uuid], now(), now(), now(),
                'no mailbox ada@acme.example'
            )"
        ))
        .await;
    let stored = system.dump_database().await.to_lowercase();
    assert!(stored.contains("ada@acme") && stored.contains("ada-laptop"));

    for _ in 0..2 {
        assert_eq!(delete(&admin, user_id).await, 204);
    }
    for client in [&ada.client, &key] {
        client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    }
    foreign.get("/auth/session").await.expect::<Value>(200);
    admin.client.get(&format!("/users/{user_id}")).await.expect_problem(404, "not_found");
    let about_ada = admin.client.clone().header("X-User-ID", &user_id.to_string());
    about_ada.get("/auth/sessions").await.expect_problem(404, "not_found");
    system.wait_for_empty_outbox().await;
    let stored = system.dump_database().await.to_lowercase();
    assert!(!stored.contains("ada@acme") && !stored.contains("ada-laptop"), "{stored}");
    assert_eq!(counted_logins(&system).await, before);

    let records = wait_until("the audit event is published", async || {
        let page: Page<AuditRecord> = admin.client.get("/audit?kind=user_deleted").await.expect(200);
        (!page.items.is_empty()).then_some(page.items)
    })
    .await;
    let [record] = &*records else { panic!("{records:?}") };
    let by = Actor::User { user_id: admin.user.user_id };
    assert_eq!((record.user_id, record.actor, &record.email), (Some(user_id), by, &None));
}

#[tokio::test]
async fn deleting_a_user_deletes_the_waiting_mails_to_and_about_the_user() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.wait_for_empty_outbox().await;
    // Stops the relay.
    system.run_sql("revoke execute on function identity.outbox_claim from svc_identity").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Admin).await;
    let (change, reset) = (
        json!({ "current_password": PASSWORD, "new_password": "another-password-9" }),
        json!({ "email": "ada@acme.example" }),
    );
    let ada_id = ada.user.user_id;
    ada.client
        .clone()
        .header("X-User-ID", &ada_id.to_string())
        .post("/auth/password/change", &change)
        .await
        .expect_empty(204);
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &reset).await.expect_empty(204);
    let invite = json!({ "email": "ben@acme.example" });
    admin.client.post("/users/invite", &invite).await.expect::<Invite>(201);
    let ben: Page<User> = admin.client.get("/users?email=ben@acme.example").await.expect(200);
    let kinds = async || {
        let kinds = "select distinct kind from identity.outbox where kind like 'mail%' order by kind";
        let kinds: Vec<String> = sqlx::query_scalar(kinds)
            .fetch_all(&mut system.database.superuser().await.unwrap())
            .await
            .unwrap();
        kinds
    };
    assert_eq!(kinds().await, ["mail_admin_notice", "mail_invite", "mail_notice", "mail_reset"]);
    assert_eq!(delete(&admin, ben.items[0].user_id).await, 204);
    assert_eq!(kinds().await, ["mail_admin_notice", "mail_notice", "mail_reset"]);
    assert_eq!(delete(&admin, ada_id).await, 204);
    assert_eq!(kinds().await, [] as [&str; 0]);
}

#[tokio::test]
async fn the_address_of_a_deleted_user_can_be_invited_again_and_gets_a_new_id() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    assert_eq!(delete(&admin, ada.user.user_id).await, 204);
    let again = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    assert_ne!(again.user.user_id, ada.user.user_id);
    assert_eq!(delete(&admin, ada.user.user_id).await, 204, "the first id stays deleted");
    again.client.get("/auth/session").await.expect::<Value>(200);

    // An invited user is deleted with the invite.
    let invite = json!({ "email": "ben@acme.example", "delivery": "response" });
    let invited: Invite = admin.client.post("/users/invite", &invite).await.expect(201);
    let ben: Page<User> = admin.client.get("/users?email=ben@acme.example").await.expect(200);
    assert_eq!(delete(&admin, ben.items[0].user_id).await, 204);
    let accept = json!({ "token": invited.token, "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
    assert!(!system.dump_database().await.contains("ben@acme"));
    system.add_user(&admin, "ben@acme.example", Role::Member).await;
}

#[tokio::test]
async fn the_last_active_administrator_cannot_be_deleted_even_concurrently() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let own = admin.user.user_id;
    let path = format!("/users/{own}");
    admin.client.delete(&path).await.expect_problem(409, "last_admin");
    let ada = system.add_user(&admin, "ada@acme.example", Role::Admin).await;
    let (first, second) = tokio::join!(delete(&admin, ada.user.user_id), delete(&ada, own));
    let mut statuses = [first, second];
    statuses.sort_unstable();
    // The second request fails: the target is the last administrator, or the caller is deleted.
    assert_eq!(statuses[0], 204);
    assert!(matches!(statuses[1], 401 | 409), "{statuses:?}");
}

async fn suspend(system: &TestSystem, tenant_id: &str) {
    let suspended = json!({ "status": "suspended" });
    let path = format!("/tenants/{tenant_id}");
    system.platform_admin().patch(&path, &suspended).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn only_a_suspended_tenant_is_deleted_and_its_id_is_not_used_again() {
    let system = TestSystem::start().await.unwrap();
    let other = system.create_tenant("other").await;
    let logins_of_other = counted_logins(&system).await;
    let admin = system.create_tenant("acme").await;
    let log_in = system.client().header("X-Tenant-ID", "acme");
    let wrong = json!({ "email": "admin@acme.example", "password": "not-the-password-9" });
    log_in.post("/auth/password/login", &wrong).await.expect_problem(401, "login_failed");
    let more_sources = "insert into identity.login_attempts
        select (jsonb_populate_record(attempts, jsonb_build_object('source', n))).*
        from identity.login_attempts as attempts, generate_series(1, 1200) as n
        where failures > 0";
    sqlx::query(more_sources).execute(&mut system.database.superuser().await.unwrap()).await.unwrap();
    let (_, key) = system.create_api_key(&admin, &json!({ "name": "own" })).await;
    let invite = json!({ "email": "ben@acme.example" });
    admin.client.post("/users/invite", &invite).await.expect::<Invite>(201);
    let platform = system.platform_admin();
    platform.delete("/tenants/acme").await.expect_problem(409, "tenant_active");
    platform.delete("/tenants/missing").await.expect_problem(404, "not_found");
    suspend(&system, "acme").await;
    for _ in 0..2 {
        platform.delete("/tenants/acme").await.expect_empty(204);
    }
    assert_eq!(counted_logins(&system).await, logins_of_other);

    platform.get("/tenants/acme").await.expect_problem(404, "not_found");
    let resume = json!({ "status": "active" });
    platform.patch("/tenants/acme", &resume).await.expect_problem(404, "not_found");
    let again = json!({ "tenant_id": "acme", "display_name": "Acme" });
    platform.post("/tenants", &again).await.expect_problem(409, "tenant_exists");
    let tenants: Page<Tenant> = platform.get("/tenants").await.expect(200);
    assert_eq!(tenants.items.len(), 1);
    let of_acme = platform.clone().header("X-Tenant-ID", "acme");
    of_acme.post("/users/invite", &invite).await.expect_problem(404, "not_found");
    for client in [&admin.client, &key] {
        client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    }
    let password = json!({ "email": "admin@acme.example", "password": PASSWORD });
    log_in.post("/auth/password/login", &password).await.expect_problem(401, "login_failed");
    other.client.get("/auth/session").await.expect::<Value>(200);

    system.wait_for_empty_outbox().await;
    let stored = system.dump_database().await;
    assert!(!stored.contains("@acme.example") && stored.contains("@other.example"), "{stored}");
    let events = "/audit?kind=authz_admin&tenant_id=acme";
    let mut page: Page<AuditRecord> = platform.get(events).await.expect(200);
    // Events arrive slightly out of order.
    page.items.sort_by_key(|record| record.id);
    let about: Vec<_> = page.items.iter().map(|record| record.about.as_deref().unwrap()).collect();
    assert_eq!(about, ["tenant_created", "tenant_suspended", "tenant_deleted"]);
}

#[tokio::test]
async fn the_erasure_of_a_tenant_locks_a_user_before_the_counted_logins() {
    let system = TestSystem::start().await.unwrap();
    system.create_tenant("acme").await;
    let log_in = system.client().header("X-Tenant-ID", "acme");
    let wrong = json!({ "email": "admin@acme.example", "password": "not-the-password-9" });
    log_in.post("/auth/password/login", &wrong).await.expect_problem(401, "login_failed");
    suspend(&system, "acme").await;
    let mut reset = system.database.superuser().await.unwrap();
    sqlx::raw_sql("begin; select from identity.users for update").execute(&mut reset).await.unwrap();
    let reset = async {
        let mut observer = system.database.superuser().await.unwrap();
        wait_until("the erasure waits for the user", async || {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut observer).await.unwrap();
            (waiting == 1).then_some(())
        })
        .await;
        let locked =
            sqlx::query("select from identity.login_failures for update nowait").execute(&mut reset).await;
        sqlx::raw_sql("rollback").execute(&mut reset).await.unwrap();
        locked.map(|rows| rows.rows_affected())
    };
    let platform = system.platform_admin();
    let (deletion, locked) = tokio::join!(platform.delete("/tenants/acme"), reset);
    deletion.expect_empty(204);
    assert_eq!((locked.unwrap(), counted_logins(&system).await), (1, 0));
}

#[tokio::test]
async fn a_tenant_that_is_locked_does_not_delay_the_erasure_of_another() {
    let system = TestSystem::start().await.unwrap();
    for tenant_id in ["acme", "other"] {
        system.create_tenant(tenant_id).await;
    }
    system.wait_for_empty_outbox().await;
    suspend(&system, "other").await;
    system
        .run_sql(
            "update identity.tenants set status = 'deleted', deleted_at = now() where tenant_id = 'acme'",
        )
        .await;
    let mut lock = system.database.superuser().await.unwrap();
    let statements = "begin; select from identity.tenants where tenant_id = 'acme' for update";
    sqlx::raw_sql(statements).execute(&mut lock).await.unwrap();
    system.platform_admin().delete("/tenants/other").await.expect_empty(204);
    let stored = system.dump_database().await;
    assert!(stored.contains("@acme.example") && !stored.contains("@other.example"), "{stored}");
}

/// Streams and subjects of the commands in docs/operations.md that purge the events of the tenant `acme`.
fn documented_purges() -> Vec<(&'static str, &'static str)> {
    let document = include_str!("../../../../docs/operations.md");
    let commands = document.lines().filter_map(|line| line.strip_prefix("nats stream purge "));
    commands.map(|command| command.split_once(" --force --subject=").unwrap()).collect()
}

#[tokio::test]
async fn the_documented_commands_purge_the_events_of_one_tenant() {
    let system = TestSystem::start().await.unwrap();
    let tenants = [system.create_tenant("acme").await, system.create_tenant("other").await];
    let client = system.nats.connect("administrator").await.unwrap();
    let broker = jetstream::new(client.clone());
    for tenant in &tenants {
        for source in ["fw-1", "fw-2", "fw-3"] {
            tenant.client.post("/events", &json!({ "source_id": source })).await.expect::<Value>(202);
        }
        let dead_letter = format!("udm.dlq.v1.{}.reader", tenant.user.tenant_id);
        client.request(dead_letter, "{}".into()).await.unwrap();
    }
    system.wait_for_empty_outbox().await;
    let audit = system.nats.connect("audit-administrator").await.unwrap();
    let audit = jetstream::new(audit);
    let broker_of = |stream: &str| if stream == "AUDIT" { &audit } else { &broker };
    let subjects = async |stream: &str| {
        let mut stream = broker_of(stream).get_stream(stream).await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        let mut subjects = Vec::new();
        for sequence in 1..=last {
            subjects.extend(stream.get_raw_message(sequence).await.ok().map(|message| message.subject));
        }
        subjects
    };
    let purges = documented_purges();
    assert_eq!(purges.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), ["UDM", "UDM_DLQ", "AUDIT"]);
    for (stream, subject) in purges {
        let of_other = |subjects: Vec<async_nats::Subject>| {
            let (other, acme): (Vec<_>, Vec<_>) =
                subjects.into_iter().partition(|subject| subject.contains(".other."));
            (other.len(), acme.len())
        };
        let (before, acme) = of_other(subjects(stream).await);
        assert!(before > 0 && acme > 0, "{stream}");
        broker_of(stream)
            .get_stream(stream)
            .await
            .unwrap()
            .purge()
            .filter(subject.trim_matches('\''))
            .await
            .unwrap();
        assert_eq!(of_other(subjects(stream).await), (before, 0), "{stream}");
    }
}
