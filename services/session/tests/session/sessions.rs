//! `/auth/session` and `/auth/sessions`: the caller's credential, and listing and revoking sessions.

mod expiry;
mod lifecycle;
mod model;

use contract::session::{AuthMethod, Session, SessionMethod, SubjectType, Whoami};
use contract::{Page, Role, Scope};
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
async fn user_lists_own_sessions_with_the_current_one_marked() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.log_in("acme", "admin@acme.example").await;
    let page: Page<Session> = list(&admin.client, admin.user.user_id).await.expect(200);
    assert_eq!(page.items.iter().filter_map(|session| session.current).collect::<Vec<_>>(), [true, false]);
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
    assert_eq!((two.items.len(), two.next_cursor), (1, Some(format!("sessions.{}", first.id))));
}

#[tokio::test]
async fn only_administrators_of_the_tenant_list_sessions_of_other_users() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    list(&admin.client, ada.user.user_id).await.expect::<Page<Session>>(200);
    let foreign = list(&other.client, ada.user.user_id).await;
    let missing = list(&other.client, UserId::generate()).await;
    for response in [&foreign, &missing, &list(&bob.client, ada.user.user_id).await] {
        assert_eq!(
            response.expect_problem(404, "not_found").detail,
            missing.expect_problem(404, "not_found").detail
        );
    }
    admin.client.get("/auth/sessions").await.expect_problem(400, "header_missing");
    let bad = admin.client.clone().header("X-User-ID", "no-uuid");
    bad.get("/auth/sessions").await.expect_problem(400, "header_invalid");
    system.client().get("/auth/sessions").await.expect_problem(401, "unauthenticated");
}

#[tokio::test]
async fn logout_with_the_raw_token_revokes_the_session_and_is_idempotent() {
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
async fn owner_or_administrator_revokes_a_listed_session() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let path = format!("/auth/sessions/{}", ids(&ada).await[0]);
    for person in [&bob, &other] {
        person.client.delete(&path).await.expect_problem(404, "not_found");
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
async fn revoking_all_sessions_can_keep_the_current_one() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    system.log_in("acme", "ada@acme.example").await;
    let request_as =
        |person: &TestUser| person.client.clone().header("X-User-ID", &ada.user.user_id.to_string());
    request_as(&other).delete("/auth/sessions").await.expect_problem(404, "not_found");
    assert_eq!(ids(&ada).await.len(), 2);
    request_as(&ada).delete("/auth/sessions?keep_current=true").await.expect_empty(204);
    assert_eq!(ids(&ada).await.len(), 1);
    request_as(&admin).delete("/auth/sessions").await.expect_empty(204);
    ada.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    admin.client.get("/auth/session").await.expect::<serde_json::Value>(200);
}

#[tokio::test]
async fn whoami_returns_the_user_of_a_session() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let whoami: Whoami = member.client.get("/auth/session").await.expect(200);
    assert_eq!(
        whoami,
        Whoami {
            subject_type: SubjectType::User,
            user_id: Some(member.user.user_id),
            key_id: None,
            tenant_id: "acme".parse().unwrap(),
            role: Some(Role::Member),
            scopes: vec![Scope::EventsWrite],
            method: Some(SessionMethod::Password),
            amr: vec![AuthMethod::Pwd],
            expires_at: member.session.expires_at,
            idle_expires_at: Some(member.session.idle_expires_at),
        }
    );
}

#[tokio::test]
async fn rejects_unknown_and_malformed_credentials_with_the_same_response() {
    let system = TestSystem::start().await.unwrap();
    let get = async |token: &str| system.client().bearer(token).get("/auth/session").await;
    system.client().get("/auth/session").await.expect_problem(401, "unauthenticated");
    let unknown = "svc_st_0000000000000000000000000000000000000000000_000000";
    for token in ["", "nonsense", unknown] {
        let response = get(token).await;
        response.expect_problem(401, "credential_invalid");
        assert_eq!(response.headers["www-authenticate"], "Bearer error=\"invalid_token\"");
    }
    let basic = system.client().header("Authorization", "Basic YTpi");
    basic.get("/auth/session").await.expect_problem(401, "credential_invalid");
    get(&system.platform_token).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_login_does_not_wait_for_another_transaction_of_its_tenant() {
    let system = TestSystem::start().await.unwrap();
    system.create_tenant("acme").await;
    let mut other = system.database.superuser().await.unwrap();
    let statements = "begin; select from session.tenants for no key update";
    let locked = sqlx::raw_sql(statements).execute(&mut other).await;
    assert_eq!(locked.unwrap().rows_affected(), 1);
    system.log_in("acme", "admin@acme.example").await;
}
