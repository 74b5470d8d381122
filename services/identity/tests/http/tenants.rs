//! `/tenants`.

use contract::Page;
use contract::identity::Tenant;
use serde_json::{Value, json};
use testkit::PASSWORD;
use testsystem::TestSystem;

#[tokio::test]
async fn the_platform_administrator_creates_a_tenant_with_the_first_invite() {
    let system = TestSystem::start().await.unwrap();
    let request = json!({
        "tenant_id": "acme", "display_name": " Acme Inc. ", "admin_email": "Ada@Acme.example", "delivery": "response",
        "quota": { "events_per_second": 100 }
    });
    let answer = system.platform_admin().post("/tenants", &request).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let tenant: Tenant = answer.expect(201);
    assert_eq!((tenant.tenant_id.as_str(), tenant.display_name.as_str()), ("acme", "Acme Inc."));
    assert_eq!(tenant.quota.events_per_second, Some(100));
    let invite = tenant.invite.unwrap();
    assert_eq!((invite.email.as_str(), invite.role.as_str()), ("Ada@Acme.example", "admin"));
    assert!(invite.token.unwrap().expose().starts_with("svc_iv_"));
}

#[tokio::test]
async fn a_tenant_id_is_unique() {
    let system = TestSystem::start().await.unwrap();
    let request = json!({ "tenant_id": "acme", "display_name": "Acme" });
    system.platform_admin().post("/tenants", &request).await.expect::<Tenant>(201);
    system.platform_admin().post("/tenants", &request).await.expect_problem(409, "tenant_exists");
}

#[tokio::test]
async fn an_invalid_tenant_is_rejected_with_the_field() {
    let system = TestSystem::start().await.unwrap();
    let create = async |body| system.platform_admin().post("/tenants", &body).await;
    for (body, pointer) in [
        (json!({ "tenant_id": "Not A Label", "display_name": "x" }), "/tenant_id"),
        (json!({ "tenant_id": "a", "display_name": " " }), "/display_name"),
        (json!({ "tenant_id": "a", "display_name": "x\u{0}y" }), "/display_name"),
        (json!({ "tenant_id": "a", "display_name": "x", "admin_email": "not-an-address" }), "/admin_email"),
        (
            json!({ "tenant_id": "a", "display_name": "x", "quota": { "bytes_per_second": 0 } }),
            "/quota/bytes_per_second",
        ),
        (json!({ "tenant_id": "a", "display_name": "x", "second_factor": "nobody" }), "/second_factor"),
        (json!({ "tenant_id": "a", "display_name": "x", "password_min_length": 11 }), "/password_min_length"),
        (
            json!({ "tenant_id": "a", "display_name": "x", "password_min_length": 129 }),
            "/password_min_length",
        ),
    ] {
        let problem = create(body).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, pointer);
    }
    assert_eq!(system.platform_admin().get("/tenants").await.expect::<Page<Tenant>>(200).items.len(), 0);
}

#[tokio::test]
async fn only_the_platform_administrator_creates_and_lists_tenants() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let request = json!({ "tenant_id": "other", "display_name": "Other" });
    system.client().post("/tenants", &request).await.expect_problem(401, "unauthenticated");
    admin.client.post("/tenants", &request).await.expect_problem(403, "forbidden");
    admin.client.get("/tenants").await.expect_problem(403, "forbidden");
    let other = system.client().bearer("svc_pt_0000000000000000000000000000000000000000000_000000");
    other.post("/tenants", &request).await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn users_read_only_their_own_tenant() {
    let system = TestSystem::start().await.unwrap();
    let (admin, _other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    assert_eq!(admin.client.get("/tenants/acme").await.expect::<Tenant>(200).tenant_id.as_str(), "acme");
    let foreign = admin.client.get("/tenants/other").await.expect_problem(404, "not_found");
    let missing = admin.client.get("/tenants/missing").await.expect_problem(404, "not_found");
    assert_eq!(foreign.detail, missing.detail);
    system.platform_admin().get("/tenants/other").await.expect::<Tenant>(200);
    system.platform_admin().get("/tenants/missing").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn tenants_are_listed_in_pages() {
    let system = TestSystem::start().await.unwrap();
    for tenant_id in ["c", "a", "b"] {
        let request = json!({ "tenant_id": tenant_id, "display_name": tenant_id });
        system.platform_admin().post("/tenants", &request).await.expect::<Tenant>(201);
    }
    let ids = |page: &Page<Tenant>| page.items.iter().map(|t| t.tenant_id.to_string()).collect::<Vec<_>>();
    let first: Page<Tenant> = system.platform_admin().get("/tenants?limit=2").await.expect(200);
    assert_eq!(ids(&first), ["a", "b"]);
    let next = format!("/tenants?limit=2&cursor={}", first.next_cursor.unwrap());
    let second: Page<Tenant> = system.platform_admin().get(&next).await.expect(200);
    assert_eq!((ids(&second), second.next_cursor), (vec!["c".to_owned()], None));
}

#[tokio::test]
async fn a_tenant_raises_the_minimum_length_of_passwords_but_never_lowers_that_of_the_installation() {
    let system = TestSystem::start_with(&[("SVC_PASSWORD_MIN_LENGTH", "14")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let platform = system.platform_admin();
    let length = async || platform.get("/tenants/acme").await.expect::<Tenant>(200).password_min_length;
    assert_eq!(length().await, 14);
    let set =
        async |length: u32| platform.patch("/tenants/acme", &json!({ "password_min_length": length })).await;
    let problem = set(13).await.expect_problem(422, "validation_failed");
    assert!(problem.errors[0].message.contains("14 is the minimum of the installation"), "{problem:?}");
    assert_eq!(set(20).await.expect::<Tenant>(200).password_min_length, 20);
    platform.patch("/tenants/acme", &json!({ "display_name": "Acme Inc." })).await.expect::<Tenant>(200);
    assert_eq!(length().await, 20);

    let short = "nineteen characters";
    let rejected = |response: testkit::TestResponse| {
        let problem = response.expect_problem(422, "password_too_short");
        assert!(problem.detail.contains("at least 20 characters"), "{problem:?}");
        assert!(problem.errors[0].message.contains("at least 20 characters"), "{problem:?}");
    };
    // A change, an accepted invite, and a reset.
    let change = json!({ "current_password": PASSWORD, "new_password": short });
    let client = admin.client.clone().header("X-User-ID", &admin.user.user_id.to_string());
    rejected(client.post("/auth/password/change", &change).await);
    let invite = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Value = admin.client.post("/users/invite", &invite).await.expect(201);
    let inspect = json!({ "token": invite["token"] });
    let inspected: Value = system.client().post("/users/accept-invite/inspect", &inspect).await.expect(200);
    assert_eq!(inspected["password_min_length"], 20);
    let accept = |password: &str| json!({ "token": invite["token"], "password": password });
    rejected(system.client().post("/users/accept-invite", &accept(short)).await);
    let long = "twenty characters, no";
    assert_eq!(system.client().post("/users/accept-invite", &accept(long)).await.status, 201);
    let request = json!({ "email": "ada@acme.example" });
    let reset = system.client().header("X-Tenant-ID", "acme").post("/auth/password/reset", &request).await;
    reset.expect_empty(204);
    let mail = system.wait_for_mail("ada@acme.example").await;
    let token = mail.split_whitespace().find(|word| word.starts_with("svc_pr_")).unwrap();
    let inspect = json!({ "token": token });
    let inspected: Value = system.client().post("/auth/password/reset/inspect", &inspect).await.expect(200);
    assert_eq!(inspected["password_min_length"], 20);
    let confirm = json!({ "token": token, "new_password": short });
    rejected(system.client().post("/auth/password/reset/confirm", &confirm).await);

    // The present password stays valid, and the rule ends with the minimum of the installation.
    system.log_in("acme", "admin@acme.example").await;
    assert_eq!(set(14).await.expect::<Tenant>(200).password_min_length, 14);
    client.post("/auth/password/change", &change).await.expect_empty(204);
}
