//! `svc-standalone up` with the CLI `svc`: the commands that `up` prints, device login, restart and crash recovery.

use std::os::unix::fs::PermissionsExt as _;

use e2e::{
    EventStream, Installation, RunFile, Svc, api_client, descendants, is_alive, kill, output_of, token_in,
    wait_for_mail,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{DEADLINE, PASSWORD, wait_until, within};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const USER: &str = "user@demo.example";

/// Accepts the first invite and logs in, with the commands that `up` prints; token and password come from standard input.
async fn set_up_admin(svc: &Svc, run_file: &RunFile) {
    let token = run_file.admin_invite_token.as_deref().unwrap();
    let input = format!("{token}\n{PASSWORD}\n");
    svc.run_ok(&["users", "accept-invite", "-", "--password-stdin"], &input).await;
    log_in(svc, &run_file.admin_email).await;
}

async fn log_in(svc: &Svc, email: &str) {
    svc.run_ok(&["auth", "login", "--email", email, "--tenant", "demo", "--password-stdin"], PASSWORD).await;
}

async fn token(svc: &Svc) -> String {
    svc.run_ok(&["auth", "token"], "").await.trim().to_owned()
}

/// The id of the CLI's own session.
async fn current_session(svc: &Svc) -> String {
    let sessions = svc.json(&["auth", "sessions", "list"], "").await;
    let current = sessions["items"].as_array().unwrap().iter().find(|session| session["current"] == true);
    current.unwrap()["id"].as_str().unwrap().to_owned()
}

async fn expect_rejected_everywhere(run_file: &RunFile, token: &str) {
    let client = api_client(&run_file.base_url).bearer(token);
    client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    client.post("/events", &json!({ "source_id": "s" })).await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn the_run_file_has_what_scripts_need_and_drops_the_first_invite_once_it_is_used() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let run_file = &run.run_file;
    let mode = installation.path("standalone.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!((run_file.tenant.as_str(), run_file.running_processes().len()), ("demo", 3));
    let client = api_client(&run_file.base_url);
    client.get("/health").await.expect::<Value>(200); // usable as soon as the run file exists
    let platform_token = std::fs::read_to_string(&run_file.platform_token_file).unwrap();
    let platform_admin = client.bearer(&platform_token);
    let tenant: Value = platform_admin.get("/tenants/demo").await.expect(200);
    assert_eq!(tenant["status"], "active");

    let svc = run.svc();
    set_up_admin(&svc, run_file).await;
    // The printed address has a host name, so passkeys work there.
    let user = api_client(&run_file.base_url).bearer(&token(&svc).await);
    let options: Value = user.post("/auth/factors/passkeys/options", &Value::Null).await.expect(201);
    assert_eq!(options["public_key"]["rp"]["id"], "localhost");
    wait_until("the token is removed", async || {
        run.current_run_file().admin_invite_token.is_none().then_some(())
    })
    .await;
    let json: Value =
        serde_json::from_slice(&std::fs::read(installation.path("standalone.json")).unwrap()).unwrap();
    assert!(json.get("admin_invite_token").is_none(), "{json}");
}

#[tokio::test]
async fn the_printed_commands_work_and_a_revoked_session_is_rejected_everywhere() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let (run_file, admin) = (&run.run_file, run.svc());
    set_up_admin(&admin, run_file).await;

    let invite = admin.json(&["users", "invite", "--email", USER, "--tenant", "demo"], "").await;
    assert_eq!((&invite["status"], &invite["role"]), (&json!("pending"), &json!("member")));
    let mail = wait_for_mail(USER, &run_file.mail_dir).await;
    let user = run.svc();
    let accept = format!("{}\n{PASSWORD}\n", token_in(&mail));
    user.run_ok(&["users", "accept-invite", "-", "--password-stdin"], &accept).await;
    log_in(&user, USER).await;

    let event = r#"{"source_id":"demo","metadata":{"event_type":"USER_LOGIN"}}"#;
    let sent = admin.json(&["events", "send", "-f", "-"], event).await;
    assert_eq!((&sent["accepted"], &sent["rejected"]), (&json!(1), &json!(0)));
    assert_eq!(EventStream::connect(&run_file.nats_url).await.count().await, 1);

    let user_id = user.json(&["auth", "whoami"], "").await["user_id"].as_str().unwrap().to_owned();
    let sessions = admin.json(&["auth", "sessions", "list", "--user-id", &user_id], "").await;
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);

    // An administrator revokes the session of another user by id, and the own session by token.
    let (admin_token, user_token) = (token(&admin).await, token(&user).await);
    admin.run_ok(&["auth", "sessions", "revoke", &current_session(&user).await], "").await;
    expect_rejected_everywhere(run_file, &user_token).await;
    api_client(&run_file.base_url).bearer(&admin_token).get("/auth/session").await.expect::<Value>(200);
    admin.run_ok(&["auth", "sessions", "revoke", &admin_token], "").await;
    expect_rejected_everywhere(run_file, &admin_token).await;
    let rejected = user.run(&["auth", "whoami"], "").await;
    assert_eq!(rejected.code, Some(4), "{rejected:?}");
}

#[tokio::test]
async fn a_device_gets_a_session_after_a_user_approves_its_code() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let (user, device) = (run.svc(), run.svc());
    set_up_admin(&user, &run.run_file).await;

    let mut login = device.start(&["auth", "login", "--device", "--output", "json"]);
    let mut line = String::new();
    BufReader::new(login.stderr.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    let grant: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let code = grant["device"]["user_code"].as_str().unwrap();
    let approved = user.json(&["auth", "device", "approve", &code.to_lowercase(), "--yes"], "").await;
    assert!(approved["client_name"].as_str().unwrap().starts_with("svc on "), "{approved}");

    let output = within(DEADLINE, "the login", login.wait_with_output()).await.unwrap();
    let logged_in: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(logged_in["email"], run.run_file.admin_email.as_str());
    let of_device = device.json(&["auth", "whoami"], "").await;
    let of_user = user.json(&["auth", "whoami"], "").await;
    assert_eq!(of_device["user_id"], of_user["user_id"]);
    assert_eq!((&of_device["method"], &of_user["method"]), (&"device".into(), &"password".into()));
    // A session from device login cannot approve another device.
    let rejected = device.run(&["auth", "device", "approve", code, "--yes"], "").await;
    assert_ne!(rejected.code, Some(0), "{rejected:?}");
}

#[tokio::test]
async fn an_api_key_sends_events_of_its_sources_until_it_is_revoked() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let admin = run.svc();
    set_up_admin(&admin, &run.run_file).await;
    let key = admin.json(&["api-keys", "create", "--name", "sensors", "--source-id", "s-1"], "").await;
    let sensor = run.svc().with_api_key(key["key"].as_str().unwrap());
    assert_eq!(sensor.json(&["auth", "whoami"], "").await["key_id"], key["id"]);
    let send = async |event: &str| sensor.run(&["events", "send", "-f", "-"], event).await;
    let accepted = send(r#"{"source_id":"s-1"}"#).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let rejected = send(r#"{"source_id":"s-2"}"#).await;
    assert_eq!(rejected.code, Some(7), "{rejected:?}");
    assert!(rejected.stderr.contains("source_not_allowed"), "{rejected:?}");

    admin.run_ok(&["api-keys", "revoke", key["id"].as_str().unwrap(), "--yes"], "").await;
    assert_eq!(sensor.run(&["auth", "whoami"], "").await.code, Some(4));
    wait_until("ingest rejects the revoked key", async || {
        (send(r#"{"source_id":"s-1"}"#).await.code == Some(4)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn ctrl_c_leaves_no_process_and_the_next_run_has_its_data() {
    let installation = Installation::new(&[]);
    let mut run = installation.up().await;
    let svc = run.svc();
    set_up_admin(&svc, &run.run_file).await;
    let session_token = token(&svc).await;
    let tree = descendants(run.run_file.pid);
    assert!(tree.contains(&run.run_file.children.postgres) && tree.contains(&run.run_file.children.nats));

    run.process.interrupt();
    let status = run.process.wait().await;
    assert_eq!(status.code(), Some(0), "{}", run.process.output());
    let left: Vec<_> = tree.into_iter().filter(|pid| is_alive(*pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(installation.run_file().is_none());

    let again = installation.up().await;
    assert_eq!(again.run_file.admin_invite_token, None);
    log_in(&again.svc(), &again.run_file.admin_email).await;
    let client = api_client(&again.run_file.base_url).bearer(&session_token);
    client.get("/auth/session").await.expect::<Value>(200);
}

/// Each change reloads the broker, which answers no requests meanwhile.
#[tokio::test]
async fn consumers_are_created_and_deleted_one_after_another() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let platform_token = std::fs::read_to_string(&run.run_file.platform_token_file).unwrap();
    let platform_admin = api_client(&run.run_file.base_url).bearer(platform_token.trim());
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        let consumer = json!({ "name": name, "all_tenants": true });
        let created: Value = platform_admin.post("/consumers", &consumer).await.expect(201);
        assert_eq!(created["login"]["active"], true, "{created}");
    }
    for name in names {
        platform_admin.delete(&format!("/consumers/{name}")).await.expect_empty(204);
    }
}

#[tokio::test]
async fn the_log_of_the_broker_is_bounded_although_each_forged_acknowledgement_is_a_line() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let reloads = || {
        let log = std::fs::read_to_string(installation.path("data/logs/nats.log")).unwrap();
        log.matches("Reloaded server configuration").count()
    };
    assert_eq!(reloads(), 0, "the broker has read the accounts at its start");
    let platform_token = std::fs::read_to_string(&run.run_file.platform_token_file).unwrap();
    let platform_admin = api_client(&run.run_file.base_url).bearer(platform_token.trim());
    let consumer = json!({ "name": "siem", "all_tenants": true });
    let created: Value = platform_admin.post("/consumers", &consumer).await.expect(201);
    wait_until("the broker is reloaded", async || (reloads() == 1).then_some(())).await;
    let address = run.run_file.nats_url.rsplit_once('@').unwrap().1;
    let login = |name: &str| created["login"][name].as_str().unwrap().to_owned();
    let options = async_nats::ConnectOptions::with_user_and_password(login("user"), login("password"));
    let client = options.connect(address).await.unwrap();
    let logs = installation.path("data/logs");
    let size = || {
        let files = std::fs::read_dir(&logs).unwrap().map(|file| file.unwrap());
        let of_broker = files.filter(|file| file.file_name().to_string_lossy().starts_with("nats.log"));
        of_broker.map(|file| file.metadata().unwrap().len()).collect::<Vec<_>>()
    };
    let mut largest = 0_u64;
    for number in 0..400_000_u32 {
        let subject = format!("$JS.ACK.UDM.siem.1.{}.1.1.0", number + 1000);
        #[expect(clippy::disallowed_methods, reason = "represents a client that forges acknowledgements")]
        client.publish(subject, "".into()).await.unwrap();
        if number % 20_000 == 0 {
            client.flush().await.unwrap();
            largest = largest.max(size().iter().sum::<u64>());
        }
    }
    wait_until("the broker has begun another file", async || (size().len() > 1).then_some(())).await;
    assert!(
        size().len() <= 2 && largest.max(size().iter().sum::<u64>()) < 36 << 20,
        "{largest} {:?}",
        size()
    );
}

#[tokio::test]
async fn a_second_up_reports_the_address_of_the_first_and_changes_nothing() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let second = output_of(installation.command()).await;
    let stdout = String::from_utf8_lossy(&second.stdout);
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    assert!(stdout.contains("Already running at") && stdout.contains(&run.run_file.base_url), "{stdout}");
    assert_eq!(run.current_run_file(), run.run_file);
    assert_eq!(run.run_file.running_processes().len(), 3);
    set_up_admin(&run.svc(), &run.run_file).await;
}

#[tokio::test]
async fn after_a_kill_of_all_processes_the_next_run_has_each_acknowledged_event() {
    let installation = Installation::new(&[]);
    let mut run = installation.up().await;
    let svc = run.svc();
    set_up_admin(&svc, &run.run_file).await;
    let events: Vec<_> =
        (0..200).map(|id| format!("{{\"source_id\":\"s\",\"event_id\":\"e{id}\"}}\n")).collect();
    let sent = svc.json(&["events", "send", "-f", "-"], &events.concat()).await;
    assert_eq!(sent["accepted"], 200);
    for pid in descendants(run.run_file.pid) {
        kill(pid, Signal::KILL);
    }
    assert!(!run.process.wait().await.success());

    let again = installation.up().await;
    let ids = EventStream::connect(&again.run_file.nats_url).await.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (200, Some(&1)));
    log_in(&again.svc(), &again.run_file.admin_email).await;
}
