//! `svc-identity outbox` with the real binary and the runtime role, and mails of suspended tenants.

use std::process::{Command, Output};

use contract::identity::{AcceptedInvite, Tenant};
use serde_json::{Value, json};
use testkit::world::{PASSWORD, until};
use testkit::{MailServer, World};

use super::{invite, token, world};

fn outbox(world: &World, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_svc-identity"))
        .arg("outbox")
        .args(arguments)
        .env_clear()
        .env("SVC_DATABASE_URL", world.database.url("svc_identity"))
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn items(world: &World) -> Vec<Value> {
    let list: Value = serde_json::from_str(&stdout(&outbox(world, &["list", "--output", "json"]))).unwrap();
    list["items"].as_array().unwrap().clone()
}

async fn until_state(world: &World, state: &str) -> Value {
    until(async || items(world).into_iter().find(|item| item["state"] == state)).await
}

async fn suspend(world: &World, status: &str) {
    let request = world.operator().request(reqwest::Method::PATCH, "/tenants/acme");
    world.operator().send(request.json(&json!({ "status": status }))).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn a_dead_lettered_mail_is_listed_with_its_error_and_sent_after_a_retry() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    world.until_outbox_is_empty().await;
    assert_eq!(stdout(&outbox(&world, &["list"])), "Nothing is parked, and nothing waits.\n");
    invite(&admin, "refused@acme.example").await;
    let item = until_state(&world, "dead_lettered").await;
    let known = [&item["tenant_id"], &item["kind"], &item["attempts"]];
    assert_eq!(known, [&json!("acme"), &json!("mail_invite"), &json!(1)]);
    let id = item["outbox_id"].as_str().unwrap();
    let table = stdout(&outbox(&world, &["list"]));
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with(id) && row.contains(" dead_lettered ") && row.contains(" 550 "), "{table}");
    assert!(!table.contains("svc_iv_") && item.get("payload").is_none());

    // The user's address is corrected.
    world.run_sql("update identity.users set email = 'ada@acme.example' where status = 'invited'").await;
    assert_eq!(stdout(&outbox(&world, &["retry", id])), format!("{id} begins anew\n"));
    let accept = json!({ "token": token(&server.until_mails(1).await[0]), "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    world.until_outbox_is_empty().await;
    assert_eq!(items(&world), [] as [Value; 0]);
}

#[tokio::test]
async fn retry_all_schedules_only_dead_lettered_messages() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, admin) = world(&server, &[]).await;
    for email in ["refused@acme.example", "unwanted@acme.example"] {
        invite(&admin, email).await;
    }
    until(async || {
        (items(&world).iter().filter(|item| item["state"] == "dead_lettered").count() == 2).then_some(())
    })
    .await;
    assert_eq!(stdout(&outbox(&world, &["retry", "--all"])), "2 begin anew\n");
    until(async || (server.attempts("refused@acme.example") == 2).then_some(())).await;

    let unknown = outbox(&world, &["retry", "00000000-0000-0000-0000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(1));
    let stderr = String::from_utf8(unknown.stderr).unwrap();
    assert!(stderr.contains("nothing that is parked has the id"), "{stderr}");
    assert_eq!(outbox(&world, &["retry"]).status.code(), Some(2));
}

#[tokio::test]
async fn the_invite_of_a_suspended_tenant_is_mailed_after_it_is_resumed() {
    let server = MailServer::start("starttls").await.unwrap();
    let (world, _admin) = world(&server, &[]).await;
    suspend(&world, "suspended").await;
    let operator = world.operator().header("X-Tenant-ID", "acme");
    operator.post("/users/invite", &json!({ "email": "ada@acme.example" })).await.expect::<Value>(201);
    let held = until_state(&world, "held").await;
    // Mails of other tenants are not delayed.
    let _other = world.tenant("other").await;
    let reset = json!({ "email": "admin@other.example" });
    world
        .client()
        .header("X-Tenant-ID", "other")
        .post("/auth/password/reset", &reset)
        .await
        .expect_empty(204);
    server.until_mails(1).await;
    assert_eq!((&until_state(&world, "held").await["attempts"], &held["attempts"]), (&json!(0), &json!(0)));

    suspend(&world, "active").await;
    let accept = json!({ "token": token(&server.until_mails(2).await[1]), "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
}

#[test]
fn a_missing_database_url_is_a_configuration_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_svc-identity"))
        .args(["outbox", "list"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8(output.stderr).unwrap().contains("SVC_DATABASE_URL"));
}
