//! `/users/invite` and `/users/invites`.

use contract::identity::{AcceptedInvite, Invite, InviteStatus};
use contract::{Page, Role};
use serde_json::json;
use testkit::World;
use testkit::world::PASSWORD;

#[tokio::test]
async fn an_administrator_invites_and_the_mail_holds_a_token_that_works() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let invite: Invite =
        admin.client.post("/users/invite", &json!({ "email": "ada@acme.example" })).await.expect(201);
    assert_eq!((invite.role, invite.status), (Role::Member, InviteStatus::Pending));
    assert!(invite.token.is_none(), "a token that is mailed stands in the mail alone");

    let mail = world.mail_to("ada@acme.example").await;
    let token =
        mail.split_whitespace().find(|word| word.starts_with("svc_iv_")).expect("the mail holds the token");
    let accept = json!({ "token": token, "password": PASSWORD });
    let user: AcceptedInvite = world.client().post("/users/accept-invite", &accept).await.expect(201);
    assert_eq!((user.email.as_str(), user.role), ("ada@acme.example", Role::Member));
}

#[tokio::test]
async fn the_same_address_is_invited_once_at_a_time_however_it_is_written() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let invite = async |email: &str| admin.client.post("/users/invite", &json!({ "email": email })).await;
    invite("Ada@Acme.example").await.expect::<Invite>(201);
    invite(" ada@acme.EXAMPLE ").await.expect_problem(409, "invite_pending");
    invite("ADMIN@acme.example").await.expect_problem(409, "user_exists");
    invite("not an address").await.expect_problem(422, "validation_failed");
}

#[tokio::test]
async fn of_many_who_invite_the_same_person_at_once_one_wins() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let attempts = (0..8).map(|_| async { admin.client.post("/users/invite", &body).await.status });
    let mut statuses = testkit::together(attempts.collect()).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
}

#[tokio::test]
async fn members_do_not_invite_and_the_operator_names_the_tenant() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let member = world.join(&admin, "ada@acme.example", Role::Member).await;
    let body = json!({ "email": "bob@acme.example", "role": "admin", "delivery": "response" });
    member.client.post("/users/invite", &body).await.expect_problem(403, "forbidden");
    member.client.get("/users/invites").await.expect_problem(403, "forbidden");
    world.client().post("/users/invite", &body).await.expect_problem(401, "unauthenticated");
    world.operator().post("/users/invite", &body).await.expect_problem(400, "header_missing");
    let unknown = world.operator().header("X-Tenant-ID", "nowhere");
    unknown.post("/users/invite", &body).await.expect_problem(404, "not_found");
    let operator = world.operator().header("X-Tenant-ID", "acme");
    assert_eq!(operator.post("/users/invite", &body).await.expect::<Invite>(201).role, Role::Admin);
}

#[tokio::test]
async fn invites_are_listed_by_status_and_only_the_own_tenants() {
    let world = World::start().await.unwrap();
    let (admin, other) = (world.tenant("acme").await, world.tenant("other").await);
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
    let emails = async |client: &testkit::Client, path: &str| {
        let page: Page<Invite> = client.get(path).await.expect(200);
        assert!(page.items.iter().all(|invite| invite.token.is_none()));
        page.items.into_iter().map(|invite| invite.email).collect::<Vec<_>>()
    };
    assert_eq!(emails(&admin.client, "/users/invites").await, ["admin@acme.example", "ada@acme.example"]);
    assert_eq!(emails(&admin.client, "/users/invites?status=pending").await, ["ada@acme.example"]);
    assert_eq!(emails(&other.client, "/users/invites?status=pending").await, [] as [&str; 0]);
    admin.client.get("/users/invites?status=lost").await.expect_problem(422, "validation_failed");
}

#[tokio::test]
async fn a_resent_invite_has_a_new_token_and_the_old_one_is_dead() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let first: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let path = format!("/users/invites/{}/resend", first.invite_id);
    let second: Invite = admin.client.post(&path, &json!({ "delivery": "response" })).await.expect(200);
    assert_eq!(second.invite_id, first.invite_id);
    let accept = async |invite: Invite| {
        let body = json!({ "token": invite.token.unwrap(), "password": PASSWORD });
        world.client().post("/users/accept-invite", &body).await
    };
    accept(first).await.expect_problem(400, "token_invalid");
    accept(second).await.expect::<AcceptedInvite>(201);
    admin.client.post(&path, &json!({})).await.expect_problem(409, "user_exists");
}

#[tokio::test]
async fn a_revoked_invite_cannot_be_accepted_and_the_person_can_be_invited_again() {
    let world = World::start().await.unwrap();
    let (admin, other) = (world.tenant("acme").await, world.tenant("other").await);
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let path = format!("/users/invites/{}", invite.invite_id);
    other.client.delete(&path).await.expect_problem(404, "not_found");
    admin.client.delete(&path).await.expect_empty(204);
    admin.client.delete(&path).await.expect_empty(204);
    admin.client.delete("/users/invites/no-id").await.expect_problem(404, "not_found");
    let accept = json!({ "token": invite.token.unwrap(), "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
}

#[tokio::test]
async fn an_invite_past_its_time_gives_way_to_another() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    world
        .run_sql(
            "update identity.invites set expires_at = now() - interval '1 second' where status = 'pending'",
        )
        .await;
    let accept = json!({ "token": invite.token.unwrap(), "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
    let listed: Page<Invite> = admin.client.get("/users/invites?status=expired").await.expect(200);
    assert_eq!(listed.items[0].email, "ada@acme.example");
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
}

#[tokio::test]
async fn a_late_mail_of_an_earlier_term_leaves_a_resent_invite_alone() {
    let world = World::start().await.unwrap();
    let admin = world.tenant("acme").await;
    let invite: Invite =
        admin.client.post("/users/invite", &json!({ "email": "ada@acme.example" })).await.expect(201);
    world.mail_to("ada@acme.example").await;
    let path = format!("/users/invites/{}/resend", invite.invite_id);
    let resent: Invite = admin.client.post(&path, &json!({ "delivery": "response" })).await.expect(200);
    // The first mail's row is worked off once more, as after a failed attempt.
    let payload = json!({ "invite_id": invite.invite_id, "expires_at": invite.expires_at });
    world
        .run_sql(&format!(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            values (gen_random_uuid(), 'acme', 'mail_invite', '{payload}', now(), now())"
        ))
        .await;
    world.until_outbox_is_empty().await;
    let accept = json!({ "token": resent.token.unwrap(), "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
}
