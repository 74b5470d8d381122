//! The lock-out after a hundred failures in a row, and both ways out of it.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::World;
use testkit::world::{PASSWORD, Person};

const EMAIL: &str = "admin@acme.example";
const NEW: &str = "another-horse-battery-10";

async fn start() -> World {
    World::start_with(&[("SVC_TRUSTED_PROXIES", "127.0.0.0/8")]).await.unwrap()
}

/// The status of an attempt from an address of its own.
async fn attempt(world: &World, n: usize, email: &str, password: &str) -> u16 {
    let address = format!("2001:db8:0:{n:x}::1");
    let client = world.client().header("X-Tenant-ID", "acme").header("X-Forwarded-For", &address);
    client.post("/auth/password/login", &json!({ "email": email, "password": password })).await.status
}

/// A tenant whose administrator a hundred strangers have kept out.
async fn locked(world: &World) -> Person {
    let admin = world.tenant("acme").await;
    for n in 0..100 {
        assert_eq!(attempt(world, n, EMAIL, "wrong-password-altogether").await, 401);
    }
    assert_eq!(attempt(world, 100, EMAIL, PASSWORD).await, 401, "locked, from anywhere");
    admin
}

#[tokio::test]
async fn a_hundred_failures_in_a_row_lock_and_a_success_ends_the_row() {
    let world = start().await;
    let _admin = world.tenant("acme").await;
    for n in 0..99 {
        assert_eq!(attempt(&world, n, EMAIL, "wrong-password-altogether").await, 401);
    }
    assert_eq!(attempt(&world, 99, EMAIL, PASSWORD).await, 200);
    for n in 100..200 {
        assert_eq!(attempt(&world, n, EMAIL, "wrong-password-altogether").await, 401);
    }
    assert_eq!(attempt(&world, 200, EMAIL, PASSWORD).await, 401);
}

#[tokio::test]
async fn a_reset_ends_a_lock_out_and_the_waits() {
    let world = start().await;
    let _admin = locked(&world).await;
    for _ in 0..6 {
        assert_eq!(attempt(&world, 1, EMAIL, "wrong-password-altogether").await, 401);
    }
    let client = world.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": EMAIL })).await.expect_empty(204);
    let mail = world.mail_to(EMAIL).await;
    let token = mail.split_whitespace().find(|word| word.starts_with("svc_pr_")).unwrap();
    client
        .post("/auth/password/reset/confirm", &json!({ "token": token, "new_password": NEW }))
        .await
        .expect_empty(204);
    assert_eq!(attempt(&world, 1, EMAIL, NEW).await, 200);
}

#[tokio::test]
async fn whoever_sets_the_user_active_again_ends_a_lock_out() {
    let world = start().await;
    let admin = locked(&world).await;
    let path = format!("/users/{}", admin.user.user_id);
    let change = async |body: Value| {
        let request = admin.client.request(Method::PATCH, &path).json(&body);
        admin.client.send(request).await.expect::<Value>(200)
    };
    change(json!({ "role": "admin" })).await;
    assert_eq!(attempt(&world, 101, EMAIL, PASSWORD).await, 401, "another change unlocks nothing");
    change(json!({ "status": "active" })).await;
    assert_eq!(attempt(&world, 102, EMAIL, PASSWORD).await, 200);
}

#[tokio::test]
async fn who_accepts_an_invite_begins_without_the_failures_of_strangers() {
    let world = start().await;
    let admin = world.tenant("acme").await;
    let email = "ada@acme.example";
    let invite = json!({ "email": email, "delivery": "response" });
    let invite: Value = admin.client.post("/users/invite", &invite).await.expect(201);
    for n in 0..101 {
        assert_eq!(attempt(&world, n, email, PASSWORD).await, 401);
    }
    let accept = json!({ "token": invite["token"], "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect::<Value>(201);
    assert_eq!(attempt(&world, 1, email, PASSWORD).await, 200);
}
