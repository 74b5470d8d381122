//! `/auth/password/login`.

use contract::Role;
use contract::session::Whoami;
use serde_json::json;
use testkit::PASSWORD;
use testsystem::TestSystem;

#[tokio::test]
async fn the_correct_password_creates_a_session_token() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let client = system.client().header("X-Tenant-ID", "acme").header("User-Agent", "check/1.0");
    let body = json!({ "email": " ADMIN@Acme.example", "password": PASSWORD });
    let answer = client.post("/auth/password/login", &body).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let session = answer.json();
    assert_eq!(answer.status, 200);
    assert_eq!(session["token_type"], "Bearer");
    assert_eq!(session["user_id"], json!(admin.user.user_id));
    let whoami: Whoami = system
        .client()
        .bearer(session["session_id"].as_str().unwrap())
        .get("/auth/session")
        .await
        .expect(200);
    assert_eq!((whoami.role, whoami.tenant_id.as_str()), (Some(Role::Admin), "acme"));
}

/// Status, headers and body are identical except for the request id.
#[tokio::test]
async fn every_failed_login_gets_the_same_response() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    admin
        .client
        .post("/users/invite", &json!({ "email": "invited@acme.example" }))
        .await
        .expect::<serde_json::Value>(201);
    let _disabled = system.add_user(&admin, "disabled@acme.example", Role::Member).await;
    system
        .run_sql("update identity.users set status = 'disabled' where email = 'disabled@acme.example'")
        .await;
    let _suspended = system.create_tenant("suspended").await;
    system.run_sql("update identity.tenants set status = 'suspended' where tenant_id = 'suspended'").await;

    let long = "x".repeat(600);
    let mut answers = Vec::new();
    for (tenant, email, password) in [
        ("acme", "admin@acme.example", "wrong-password-altogether"),
        ("acme", "admin@acme.example", ""),
        ("acme", "admin@acme.example", "control\u{0}character"),
        ("acme", "admin@acme.example", &long),
        ("acme", "unknown@acme.example", PASSWORD),
        ("acme", "no address\u{0}at all", PASSWORD),
        ("acme", "invited@acme.example", PASSWORD),
        ("acme", "disabled@acme.example", PASSWORD),
        ("suspended", "admin@suspended.example", PASSWORD),
        ("unknown", "admin@acme.example", PASSWORD),
    ] {
        let client = system.client().header("X-Tenant-ID", tenant).header("X-Request-Id", "the-same");
        let mut answer =
            client.post("/auth/password/login", &json!({ "email": email, "password": password })).await;
        answer.expect_problem(401, "login_failed");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        answer.headers.remove("date");
        answers.push(answer.to_string());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:#?}");
}

#[tokio::test]
async fn a_malformed_login_request_gets_a_specific_problem() {
    let system = TestSystem::start().await.unwrap();
    let body = json!({ "email": "a@b.c", "password": PASSWORD });
    system.client().post("/auth/password/login", &body).await.expect_problem(400, "header_missing");
    let client = system.client().header("X-Tenant-ID", "acme");
    let path = "/auth/password/login";
    client.post(path, &json!({ "email": "a@b.c" })).await.expect_problem(422, "validation_failed");
    client.post(path, &json!({ "email": 1, "password": "x" })).await.expect_problem(422, "validation_failed");
    client.post_bytes(path, "application/json", "{").await.expect_problem(400, "malformed_json");
    client.post_bytes(path, "text/plain", "{}").await.expect_problem(415, "media_type");
    client.post_bytes(path, "application/json", vec![b' '; 9000]).await.expect_problem(413, "body_too_large");
    system
        .client()
        .header("X-Tenant-ID", "Not A Label")
        .post(path, &body)
        .await
        .expect_problem(400, "header_invalid");
    client.get(path).await.expect_problem(405, "method_not_allowed");
    client.get("/auth/password/nowhere").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_login_rehashes_the_password_with_current_parameters() {
    let system = TestSystem::start_with(&[("SVC_ARGON2_TIME_COST", "2")]).await.unwrap();
    let _admin = system.create_tenant("acme").await;
    // The digest of PASSWORD under older settings: one iteration, 32 KiB, one lane.
    let old = testsystem::outdated_digest().await;
    system.run_sql(&format!("update identity.users set password_digest = '{old}'")).await;
    system.log_in("acme", "admin@acme.example").await;
    system.wait_for_text_in_database("$argon2id$v=19$m=64,t=2,p=4$").await;
    system.log_in("acme", "admin@acme.example").await;
}

#[tokio::test]
async fn the_hash_kernel_is_that_of_the_processor_or_the_crate() {
    for (setting, kernels) in [("auto", &["avx2", "crate"][..]), ("crate", &["crate"])] {
        let system = TestSystem::start_with(&[("SVC_HASH_KERNEL", setting)]).await.unwrap();
        let client = testkit::client::plain_http();
        let url = format!("{}/metrics", system.admin_url);
        let metrics = client.get(url).send().await.unwrap().text().await.unwrap();
        let used = |kernel: &&str| metrics.contains(&format!("svc_hash_kernel{{kernel=\"{kernel}\"}} 1\n"));
        assert_eq!(kernels.iter().filter(|kernel| used(kernel)).count(), 1, "{setting}: {metrics}");
    }
}
