//! `svc-identity outbox` with the real binary and the runtime role, and mails of suspended tenants.

use std::process::{Command, Output};

use contract::identity::{AcceptedInvite, Tenant};
use serde_json::{Value, json};
use testkit::{MailServer, PASSWORD, wait_until};
use testsystem::TestSystem;

use super::{invite, system, token};

fn outbox(system: &TestSystem, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_svc-identity"))
        .arg("outbox")
        .args(arguments)
        .env_clear()
        .env("SVC_DATABASE_URL", system.database.url("svc_identity"))
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn items(system: &TestSystem) -> Vec<Value> {
    let list = stdout(&outbox(system, &["list"]));
    list.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn until_state(system: &TestSystem, state: &str) -> Value {
    wait_until("an outbox message has this state", async || {
        items(system).into_iter().find(|item| item["state"] == state)
    })
    .await
}

async fn suspend(system: &TestSystem, status: &str) {
    let request = system.platform_admin().request(reqwest::Method::PATCH, "/tenants/acme");
    system.platform_admin().send(request.json(&json!({ "status": status }))).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn a_dead_lettered_mail_is_listed_with_its_error_and_sent_after_a_retry() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    system.wait_for_empty_outbox().await;
    assert_eq!(stdout(&outbox(&system, &["list"])), "");
    invite(&admin, "refused@acme.example").await;
    let item = until_state(&system, "dead_lettered").await;
    let known = [&item["tenant_id"], &item["kind"], &item["attempts"]];
    assert_eq!(known, [&json!("acme"), &json!("mail_invite"), &json!(1)]);
    let id = item["outbox_id"].as_str().unwrap();
    assert!(item["last_error"].as_str().unwrap().contains("550 5.1.1"), "{item}");
    assert!(!item.to_string().contains("svc_iv_") && item.get("payload").is_none(), "{item}");

    // The address is corrected.
    system.run_sql("update identity.invites set email = 'ada@acme.example' where status = 'pending'").await;
    assert_eq!(stdout(&outbox(&system, &["retry", id])), format!("Message {id} scheduled for retry\n"));
    let accept = json!({ "token": token(&server.wait_for_mails(1).await[0]), "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    system.wait_for_empty_outbox().await;
    assert_eq!(items(&system), [] as [Value; 0]);
}

#[tokio::test]
async fn retry_all_schedules_only_dead_lettered_messages() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, admin) = system(&server, &[]).await;
    for email in ["refused@acme.example", "unwanted@acme.example"] {
        invite(&admin, email).await;
    }
    wait_until("both messages are dead-lettered", async || {
        (items(&system).iter().filter(|item| item["state"] == "dead_lettered").count() == 2).then_some(())
    })
    .await;
    assert_eq!(stdout(&outbox(&system, &["retry", "--all"])), "2 messages scheduled for retry\n");
    wait_until("the mail server got two attempts", async || {
        (server.attempts("refused@acme.example") == 2).then_some(())
    })
    .await;

    let unknown = outbox(&system, &["retry", "00000000-0000-0000-0000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(1));
    let stderr = String::from_utf8(unknown.stderr).unwrap();
    assert!(stderr.contains("no dead-lettered message has the id"), "{stderr}");
    assert_eq!(outbox(&system, &["retry"]).status.code(), Some(2));
}

#[tokio::test]
async fn the_invite_of_a_suspended_tenant_is_mailed_after_it_is_resumed() {
    let server = MailServer::start("starttls").await.unwrap();
    let (system, _admin) = system(&server, &[]).await;
    suspend(&system, "suspended").await;
    let operator = system.platform_admin().header("X-Tenant-ID", "acme");
    operator.post("/users/invite", &json!({ "email": "ada@acme.example" })).await.expect::<Value>(201);
    let held = until_state(&system, "held").await;
    // Mails of other tenants are not delayed.
    let _other = system.create_tenant("other").await;
    let reset = json!({ "email": "admin@other.example" });
    system
        .client()
        .header("X-Tenant-ID", "other")
        .post("/auth/password/reset", &reset)
        .await
        .expect_empty(204);
    server.wait_for_mails(1).await;
    assert_eq!((&until_state(&system, "held").await["attempts"], &held["attempts"]), (&json!(0), &json!(0)));

    suspend(&system, "active").await;
    let accept = json!({ "token": token(&server.wait_for_mails(2).await[1]), "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
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
