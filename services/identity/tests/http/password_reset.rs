//! `/auth/password/reset`.

use contract::Role;
use serde_json::{Value, json};
use testkit::{PASSWORD, TestResponse, join_all, wait_until};
use testsystem::TestSystem;

const NEW: &str = "another-horse-battery-10";

async fn request(system: &TestSystem, email: &str) {
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": email })).await.expect_empty(204);
}

async fn confirm(system: &TestSystem, token: &str, password: &str) -> TestResponse {
    system
        .client()
        .post("/auth/password/reset/confirm", &json!({ "token": token, "new_password": password }))
        .await
}

fn token_of(mail: &str) -> String {
    mail.split_whitespace().find(|word| word.starts_with("svc_pr_")).map(str::to_owned).unwrap_or_default()
}

#[tokio::test]
async fn a_reset_token_sets_a_password_once_and_revokes_every_session() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    request(&system, " ADMIN@acme.example").await;
    let token = token_of(&system.wait_for_mail("admin@acme.example").await);
    confirm(&system, &token, "short").await.expect_problem(422, "password_too_short");
    confirm(&system, &token, NEW).await.expect_empty(204);
    confirm(&system, &token, NEW).await.expect_problem(400, "token_invalid");
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    let client = system.client().header("X-Tenant-ID", "acme");
    let body = json!({ "email": "admin@acme.example", "password": NEW });
    client.post("/auth/password/login", &body).await.expect::<Value>(200);
}

#[tokio::test]
async fn an_inspected_reset_names_tenant_and_account_until_the_token_is_used() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    let token = token_of(&system.wait_for_mail("admin@acme.example").await);
    let inspect =
        async || system.client().post("/auth/password/reset/inspect", &json!({ "token": token })).await;
    let mut reset: Value = inspect().await.expect(200);
    assert!(reset["expires_at"].take().is_string());
    assert_eq!(
        reset,
        json!({
            "tenant_id": "acme", "tenant_name": "acme", "email": "admin@acme.example", "expires_at": null,
            "password_min_length": 12,
        })
    );
    confirm(&system, &token, NEW).await.expect_empty(204);
    inspect().await.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn a_reset_revokes_the_api_keys_of_the_person_only_on_request() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let other = system.add_user(&admin, "ada@acme.example", Role::Admin).await;
    let (_, own) = system.create_api_key(&admin, &json!({ "name": "own" })).await;
    let (_, foreign) = system.create_api_key(&other, &json!({ "name": "foreign" })).await;
    for (count, revoke_api_keys) in [(1, false), (2, true)] {
        request(&system, "admin@acme.example").await;
        let mails =
            system.wait_for_mails_to("admin@acme.example", "Subject: svc: Reset your password", count).await;
        let body = json!({
            "token": token_of(&mails[count - 1]), "new_password": NEW, "revoke_api_keys": revoke_api_keys,
        });
        system.client().post("/auth/password/reset/confirm", &body).await.expect_empty(204);
        let status = own.get("/auth/session").await.status;
        assert_eq!(status, if revoke_api_keys { 401 } else { 200 });
        foreign.get("/auth/session").await.expect::<Value>(200);
    }
}

#[tokio::test]
async fn of_concurrent_confirmations_of_one_reset_one_succeeds() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    let token = token_of(&system.wait_for_mail("admin@acme.example").await);
    let attempts = (0..6).map(|_| async { confirm(&system, &token, NEW).await.status });
    let mut statuses = testkit::join_all(attempts).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 400, 400, 400, 400, 400]);
}

#[tokio::test]
async fn a_newer_reset_replaces_the_older_one() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    let first = token_of(&system.wait_for_mail("admin@acme.example").await);
    request(&system, "admin@acme.example").await;
    let tokens = system.wait_for_mails(2).await.iter().map(|mail| token_of(mail)).collect::<Vec<_>>();
    system.wait_for_empty_outbox().await;
    let second = tokens.iter().find(|token| **token != first).unwrap();
    confirm(&system, &first, NEW).await.expect_problem(400, "token_invalid");
    confirm(&system, second, NEW).await.expect_empty(204);
}

#[tokio::test]
async fn at_most_five_resets_per_hour_are_mailed_and_the_last_token_stays_valid() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    for count in 1..=5 {
        request(&system, "admin@acme.example").await;
        system.wait_for_mails(count).await;
    }
    request(&system, "admin@acme.example").await;
    system.wait_for_empty_outbox().await;
    let mails = system.wait_for_mails(5).await;
    assert_eq!(mails.len(), 5);
    let last = token_of(mails.last().unwrap());
    confirm(&system, &last, NEW).await.expect_empty(204);
}

#[tokio::test]
async fn a_reset_is_mailed_beyond_the_limit_if_no_token_is_active() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    for count in 1..=5 {
        request(&system, "admin@acme.example").await;
        system.wait_for_mails(count).await;
    }
    system.run_sql("update identity.resets set expires_at = now()").await;
    for _ in 0..3 {
        request(&system, "admin@acme.example").await;
        system.wait_for_empty_outbox().await;
    }
    let mails = system.wait_for_mails(6).await;
    assert_eq!(mails.len(), 6, "one in the lifetime of a token");
    confirm(&system, &token_of(mails.last().unwrap()), NEW).await.expect_empty(204);
}

#[tokio::test]
async fn two_resets_per_hour_are_mailed_beyond_the_limit_even_if_the_user_ends_the_tokens() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    for _ in 0..10 {
        request(&system, "admin@acme.example").await;
        system.wait_for_empty_outbox().await;
        system
            .run_sql(
                "update identity.resets set status = 'replaced', settled_at = now() where status = 'pending'",
            )
            .await;
    }
    assert_eq!(system.wait_for_mails(7).await.len(), 7);
}

#[tokio::test]
async fn resets_are_limited_over_all_tenants_of_a_recipient_but_each_tenant_has_an_active_token() {
    let system = TestSystem::start().await.unwrap();
    let _acme = system.create_tenant("acme").await;
    let other = system.create_tenant("other").await;
    let _same_person = system.add_user(&other, "admin@acme.example", Role::Member).await;
    for count in 1..=5 {
        request(&system, "admin@acme.example").await;
        system.wait_for_mails(count).await;
    }
    let client = system.client().header("X-Tenant-ID", "other");
    for _ in 0..2 {
        let body = json!({ "email": "admin@acme.example" });
        client.post("/auth/password/reset", &body).await.expect_empty(204);
        system.wait_for_empty_outbox().await;
    }
    let mails = system.wait_for_mails(6).await;
    assert_eq!(mails.len(), 6);
    assert!(mails[5].contains("(organization ID other)"), "{}", mails[5]);
    confirm(&system, &token_of(&mails[5]), NEW).await.expect_empty(204);
}

/// The response depends neither on the account nor on the request.
#[tokio::test]
async fn every_reset_request_gets_the_same_response() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let _member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    system.run_sql("update identity.users set status = 'disabled' where email = 'ada@acme.example'").await;
    let path = "/auth/password/reset";
    let client = system.client().header("X-Tenant-ID", "acme").header("X-Request-Id", "the-same");
    let elsewhere = system.client().header("X-Tenant-ID", "elsewhere").header("X-Request-Id", "the-same");
    let nameless = system.client().header("X-Request-Id", "the-same");
    let json = "application/json";
    let mut answers = vec![
        client.post(path, &json!({ "email": "admin@acme.example" })).await,
        client.post(path, &json!({ "email": "unknown@acme.example" })).await,
        client.post(path, &json!({ "email": "ada@acme.example" })).await,
        client.post(path, &json!({ "email": "no address" })).await,
        client.post(path, &json!({ "mail": 1 })).await,
        client.post_bytes(path, json, "{").await,
        client.post_bytes(path, "text/plain", "{}").await,
        client.post_bytes(path, json, vec![b' '; 9000]).await,
        elsewhere.post(path, &json!({ "email": "admin@acme.example" })).await,
        nameless.post(path, &json!({ "email": "admin@acme.example" })).await,
    ];
    for answer in &mut answers {
        answer.headers.remove("date");
        // The connection is closed after a body that was not read: this depends on its size only.
        answer.headers.remove("connection");
    }
    let mut texts: Vec<_> = answers.iter().map(ToString::to_string).collect();
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:#?}");
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(1).await.len(), 1, "only the one account that can use it is mailed");
    let metrics =
        testkit::client::plain_http().get(format!("{}/metrics", system.admin_url)).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.lines().any(|line| line == "svc_resets_dropped_total 9"), "{metrics}");
}

#[tokio::test]
async fn a_reset_of_a_suspended_tenant_is_rejected_and_not_consumed() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    let token = token_of(&system.wait_for_mail("admin@acme.example").await);
    let patch = async |status: &str| {
        let body = json!({ "status": status });
        system.platform_admin().patch("/tenants/acme", &body).await.expect::<Value>(200)
    };
    patch("suspended").await;
    confirm(&system, &token, NEW).await.expect_problem(400, "token_invalid");
    patch("active").await;
    confirm(&system, &token, NEW).await.expect_empty(204);
}

#[tokio::test]
async fn a_reset_request_does_not_change_the_password() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    system.wait_for_mail("admin@acme.example").await;
    assert_eq!(system.log_in("acme", "admin@acme.example").await.tenant_id.as_str(), "acme");
    assert_ne!(PASSWORD, NEW);
}

#[tokio::test]
async fn a_password_change_invalidates_pending_resets() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    let token = token_of(&system.wait_for_mail("admin@acme.example").await);
    let client = admin.client.clone().header("X-User-ID", &admin.user.user_id.to_string());
    let body = json!({ "current_password": PASSWORD, "new_password": NEW });
    client.post("/auth/password/change", &body).await.expect_empty(204);
    confirm(&system, &token, "yet-another-horse-11").await.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn a_late_mail_of_an_older_reset_does_not_replace_the_newer_token() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    request(&system, "admin@acme.example").await;
    system.wait_for_mails(1).await;
    request(&system, "admin@acme.example").await;
    let newer = token_of(system.wait_for_mails(2).await.last().unwrap());
    system.wait_for_empty_outbox().await;
    // The first request's outbox message is delivered again, as after a failed attempt.
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            select mail_id, tenant_id, 'mail_reset', '{\"email_key\":\"admin@acme.example\"}', now(), now()
            from identity.resets where status = 'replaced'",
        )
        .await;
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(2).await.len(), 2);
    confirm(&system, &newer, NEW).await.expect_empty(204);
}

#[tokio::test]
async fn a_request_that_waits_for_the_database_gets_204_and_other_requests_get_503() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    // In new connections, Postgres does not end a statement that waits.
    system
        .run_sql(
            "do $$ begin
                execute format('alter role svc_identity in database %I set lock_timeout = 0', current_database());
                execute format('alter role svc_identity in database %I set statement_timeout = 0', current_database());
            end $$;
            select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and usename = 'svc_identity'",
        )
        .await;
    wait_until("requests use new connections", async || {
        let users = join_all((0..6).map(|_| admin.client.get("/users"))).await;
        users.iter().all(|response| response.status == 200).then_some(())
    })
    .await;
    let mut locking = system.database.superuser().await.unwrap();
    sqlx::raw_sql("begin; lock table identity.outbox").execute(&mut locking).await.unwrap();
    let invite = json!({ "email": "new@acme.example", "role": "member" });
    let invite = admin.client.post("/users/invite", &invite);
    let (invited, ()) = tokio::join!(invite, request(&system, "admin@acme.example"));
    let problem = invited.expect_problem(503, "dependency_unavailable");
    assert!(problem.detail.contains("may have taken effect"), "{invited}");
    assert!(invited.headers.contains_key("retry-after"), "{invited}");
}
