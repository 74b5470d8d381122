//! `svc-standalone up` and the real client, as somebody who has just cloned the project uses them.

use std::os::unix::fs::PermissionsExt as _;
use testkit::{PASSWORD, wait_until};

use e2e::token_in;
use e2e::{Broker, Installation, RunFile, Svc, descendants, is_alive, kill, mail_to, output_of, raw_client};
use rustix::process::Signal;
use serde_json::{Value, json};

const SOMEBODY: &str = "somebody@demo.example";

/// Accepts the first invite and logs in, as the greeting says, but with the password from a pipe.
pub(super) async fn enter(svc: &Svc, run_file: &RunFile) {
    let token = run_file.admin_invite_token.as_deref().unwrap();
    svc.done(&["users", "accept-invite", token, "--password-stdin"], PASSWORD).await;
    log_in(svc, &run_file.admin_email).await;
}

async fn log_in(svc: &Svc, email: &str) {
    svc.done(&["auth", "login", "--email", email, "--tenant", "demo", "--password-stdin"], PASSWORD).await;
}

async fn token(svc: &Svc) -> String {
    svc.done(&["auth", "token"], "").await.trim().to_owned()
}

/// The id of the session that asks.
async fn own_session(svc: &Svc) -> String {
    let sessions = svc.json(&["auth", "sessions", "list"], "").await;
    let own = sessions["items"].as_array().unwrap().iter().find(|session| session["current"] == true);
    own.unwrap()["id"].as_str().unwrap().to_owned()
}

async fn expect_refused_everywhere(run_file: &RunFile, token: &str) {
    let client = raw_client(&run_file.base_url).bearer(token);
    client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    client.post("/events", &json!({ "source_id": "s" })).await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn the_facts_hold_what_scripts_need_and_lose_the_first_invite_once_it_is_used() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let run_file = &run.run_file;
    let mode = installation.path("run_file.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!((run_file.tenant.as_str(), run_file.alive().len()), ("demo", 3));
    let anybody = raw_client(&run_file.base_url);
    anybody.get("/health").await.expect::<Value>(200); // what shows its run_file can be used
    let operator = std::fs::read_to_string(&run_file.platform_token_file).unwrap();
    let operator = anybody.bearer(&operator);
    let tenant: Value = operator.get("/tenants/demo").await.expect(200);
    assert_eq!(tenant["status"], "active");

    enter(&run.svc(), run_file).await;
    wait_until("the token is forgotten", async || run.facts_now().admin_invite_token.is_none().then_some(()))
        .await;
    let written: Value =
        serde_json::from_slice(&std::fs::read(installation.path("run_file.json")).unwrap()).unwrap();
    assert!(written.get("admin_invite_token").is_none(), "{written}");
}

#[tokio::test]
async fn the_printed_commands_work_and_a_revoked_session_is_refused_everywhere() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let (run_file, admin) = (&run.run_file, run.svc());
    enter(&admin, run_file).await;

    let invite = admin.json(&["users", "invite", "--email", SOMEBODY, "--tenant", "demo"], "").await;
    assert_eq!((&invite["status"], &invite["role"]), (&json!("pending"), &json!("member")));
    let mail = mail_to(SOMEBODY, &run_file.mail_dir).await;
    let somebody = run.svc();
    let accept = format!("{}\n{PASSWORD}\n", token_in(&mail));
    somebody.done(&["users", "accept-invite", "-", "--password-stdin"], &accept).await;
    log_in(&somebody, SOMEBODY).await;

    let event = r#"{"source_id":"demo","metadata":{"event_type":"USER_LOGIN"}}"#;
    let sent = admin.json(&["events", "send", "-f", "-"], event).await;
    assert_eq!((&sent["accepted"], &sent["rejected"]), (&json!(1), &json!(0)));
    assert_eq!(Broker::connect(&run_file.nats_url).await.count().await, 1);

    let user_id = somebody.json(&["auth", "whoami"], "").await["user_id"].as_str().unwrap().to_owned();
    let of_somebody = admin.json(&["auth", "sessions", "list", "--user-id", &user_id], "").await;
    assert_eq!(of_somebody["items"].as_array().unwrap().len(), 1);

    // By its token: one's own right. By its id: somebody else's, as an administrator.
    let (admins, somebodys) = (token(&admin).await, token(&somebody).await);
    admin.done(&["auth", "sessions", "revoke", &own_session(&somebody).await], "").await;
    expect_refused_everywhere(run_file, &somebodys).await;
    raw_client(&run_file.base_url).bearer(&admins).get("/auth/session").await.expect::<Value>(200);
    admin.done(&["auth", "sessions", "revoke", &admins], "").await;
    expect_refused_everywhere(run_file, &admins).await;
    let refused = somebody.run(&["auth", "whoami"], "").await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
}

#[tokio::test]
async fn a_program_sends_with_the_key_that_an_administrator_made_until_it_is_revoked() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let admin = run.svc();
    enter(&admin, &run.run_file).await;
    let key = admin.json(&["api-keys", "create", "--name", "sensors", "--source-id", "s-1"], "").await;
    let program = run.svc().with_api_key(key["key"].as_str().unwrap());
    assert_eq!(program.json(&["auth", "whoami"], "").await["key_id"], key["id"]);
    let send = async |event: &str| program.run(&["events", "send", "-f", "-"], event).await;
    let accepted = send(r#"{"source_id":"s-1"}"#).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let refused = send(r#"{"source_id":"s-2"}"#).await;
    assert_eq!(refused.code, Some(7), "{refused:?}");
    assert!(refused.stderr.contains("source_not_allowed"), "{refused:?}");

    admin.done(&["api-keys", "revoke", key["id"].as_str().unwrap(), "--yes"], "").await;
    assert_eq!(program.run(&["auth", "whoami"], "").await.code, Some(4));
    wait_until("ingest has heard of it", async || {
        (send(r#"{"source_id":"s-1"}"#).await.code == Some(4)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn ctrl_c_leaves_no_process_and_the_next_run_finds_its_data() {
    let installation = Installation::new(&[]);
    let mut run = installation.up().await;
    let svc = run.svc();
    enter(&svc, &run.run_file).await;
    let kept = token(&svc).await;
    let tree = descendants(run.run_file.pid);
    assert!(tree.contains(&run.run_file.children.postgres) && tree.contains(&run.run_file.children.nats));

    run.process.interrupt();
    let ended = run.process.ended().await;
    assert_eq!(ended.code(), Some(0), "{}", run.process.output());
    let left: Vec<_> = tree.into_iter().filter(|pid| is_alive(*pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(installation.run_file().is_none());

    let again = installation.up().await;
    assert_eq!(again.run_file.admin_invite_token, None);
    log_in(&again.svc(), &again.run_file.admin_email).await;
    raw_client(&again.run_file.base_url).bearer(&kept).get("/auth/session").await.expect::<Value>(200);
}

#[tokio::test]
async fn a_second_up_says_where_the_first_runs_and_does_no_harm() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let second = output_of(installation.command()).await;
    let said = String::from_utf8_lossy(&second.stdout);
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    assert!(said.contains("already running at") && said.contains(&run.run_file.base_url), "{said}");
    assert_eq!(run.facts_now(), run.run_file);
    assert_eq!(run.run_file.alive().len(), 3);
    enter(&run.svc(), &run.run_file).await;
}

#[tokio::test]
async fn after_kill_9_of_the_whole_tree_the_next_up_holds_every_acknowledged_event() {
    let installation = Installation::new(&[]);
    let mut run = installation.up().await;
    let svc = run.svc();
    enter(&svc, &run.run_file).await;
    let events: Vec<_> =
        (0..200).map(|id| format!("{{\"source_id\":\"s\",\"event_id\":\"e{id}\"}}\n")).collect();
    let sent = svc.json(&["events", "send", "-f", "-"], &events.concat()).await;
    assert_eq!(sent["accepted"], 200);
    for pid in descendants(run.run_file.pid) {
        kill(pid, Signal::KILL);
    }
    assert!(!run.process.ended().await.success());

    let again = installation.up().await;
    let ids = Broker::connect(&again.run_file.nats_url).await.message_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (200, Some(&1)));
    log_in(&again.svc(), &again.run_file.admin_email).await;
}
