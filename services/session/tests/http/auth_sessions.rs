//! `/auth/sessions`.

use contract::session::{Session, SessionMethod};
use contract::{Page, Role};
use tenancy::UserId;
use testkit::{Client, TestResponse};
use testsystem::{TestSystem, TestUser};

async fn list(client: &Client, user_id: UserId) -> TestResponse {
    client.clone().header("X-User-ID", &user_id.to_string()).get("/auth/sessions").await
}

async fn ids(person: &TestUser) -> Vec<String> {
    let page: Page<Session> = list(&person.client, person.user.user_id).await.expect(200);
    page.items.iter().map(|session| session.id.to_string()).collect()
}

#[tokio::test]
async fn a_user_lists_their_sessions_and_sees_which_one_asks() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.log_in("acme", "admin@acme.example").await;
    let page: Page<Session> = list(&admin.client, admin.user.user_id).await.expect(200);
    assert_eq!(page.items.iter().map(|session| session.current).collect::<Vec<_>>(), [true, false]);
    let first = &page.items[0];
    assert_eq!((first.method, first.ip.as_deref()), (SessionMethod::Password, Some("127.0.0.1")));
    assert_eq!(
        (first.expires_at, first.idle_expires_at),
        (admin.session.expires_at, admin.session.idle_expires_at)
    );
    let two: Page<Session> = {
        let client = admin.client.clone().header("X-User-ID", &admin.user.user_id.to_string());
        client.get("/auth/sessions?limit=1").await.expect(200)
    };
    assert_eq!((two.items.len(), two.next_cursor), (1, Some(first.id.to_string())));
}

#[tokio::test]
async fn another_users_sessions_are_seen_by_their_administrators_alone() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    list(&admin.client, ada.user.user_id).await.expect::<Page<Session>>(200);
    let foreign = list(&other.client, ada.user.user_id).await;
    let missing = list(&other.client, UserId::generate()).await;
    for answer in [&foreign, &missing, &list(&bob.client, ada.user.user_id).await] {
        assert_eq!(
            answer.expect_problem(404, "not_found").detail,
            missing.expect_problem(404, "not_found").detail
        );
    }
    admin.client.get("/auth/sessions").await.expect_problem(400, "header_missing");
    let bad = admin.client.clone().header("X-User-ID", "no-uuid");
    bad.get("/auth/sessions").await.expect_problem(400, "header_invalid");
    system.client().get("/auth/sessions").await.expect_problem(401, "unauthenticated");
}

#[tokio::test]
async fn the_raw_token_ends_its_session_as_often_as_it_is_sent() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let logout = async |raw: &str| {
        system.client().header("X-Session-ID", raw).post_bytes("/auth/sessions/logout", "", "").await
    };
    let raw = admin.session.session_id.expose();
    logout(raw).await.expect_empty(204);
    logout(raw).await.expect_empty(204);
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    admin
        .client
        .post_bytes("/events", "application/json", "{}")
        .await
        .expect_problem(401, "credential_invalid");
    let unknown = "svc_st_0000000000000000000000000000000000000000000_000000";
    for other in ["nonsense", unknown, &system.platform_token] {
        logout(other).await.expect_problem(404, "session_not_found");
    }
    system.client().post_bytes("/auth/sessions/logout", "", "").await.expect_problem(400, "header_missing");
}

#[tokio::test]
async fn a_listed_session_is_ended_by_its_owner_or_an_administrator() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let path = format!("/auth/sessions/{}", ids(&ada).await[0]);
    for stranger in [&bob, &other] {
        stranger.client.delete(&path).await.expect_problem(404, "not_found");
    }
    ada.client.delete("/auth/sessions/no-id").await.expect_problem(404, "not_found");
    ada.client.get("/auth/session").await.expect::<serde_json::Value>(200);
    admin.client.delete(&path).await.expect_empty(204);
    ada.client.get("/auth/session").await.expect_problem(401, "credential_invalid");

    let own = format!("/auth/sessions/{}", ids(&bob).await[0]);
    bob.client.delete(&own).await.expect_empty(204);
    bob.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn all_sessions_of_a_user_are_ended_and_the_one_that_asks_may_stay() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    system.log_in("acme", "ada@acme.example").await;
    let about = |person: &TestUser| person.client.clone().header("X-User-ID", &ada.user.user_id.to_string());
    about(&other).delete("/auth/sessions").await.expect_problem(404, "not_found");
    assert_eq!(ids(&ada).await.len(), 2);
    about(&ada).delete("/auth/sessions?keep_current=true").await.expect_empty(204);
    assert_eq!(ids(&ada).await.len(), 1);
    about(&admin).delete("/auth/sessions").await.expect_empty(204);
    ada.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    admin.client.get("/auth/session").await.expect::<serde_json::Value>(200);
}
