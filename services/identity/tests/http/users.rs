//! `/users/{user_id}`.

use contract::Role;
use contract::identity::User;
use testkit::World;

#[tokio::test]
async fn a_user_is_visible_to_itself_and_its_administrators_only() {
    let world = World::start().await.unwrap();
    let (admin, other) = (world.tenant("acme").await, world.tenant("other").await);
    let ada = world.join(&admin, "Ada@acme.example", Role::Member).await;
    let bob = world.join(&admin, "bob@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    for client in [&ada.client, &admin.client] {
        assert_eq!(client.get(&path).await.expect::<User>(200).email, "Ada@acme.example");
    }
    for client in [&bob.client, &other.client] {
        client.get(&path).await.expect_problem(404, "not_found");
    }
    world.client().get(&path).await.expect_problem(401, "unauthenticated");
    admin.client.get("/users/no-id").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_header_with_another_tenant_is_rejected() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let client = world.client().bearer(admin.session.session_id.expose()).header("X-Tenant-ID", "other");
    client.get(&format!("/users/{}", admin.user.user_id)).await.expect_problem(403, "tenant_mismatch");
}
