//! Remediations of logins, credentials and permissions.

use e2e::{Svc, api_client};
use serde_json::{Value, json};
use testkit::{PASSWORD, totp_after, wait_until};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Failure, NEW_PASSWORD, Remediations, UNKNOWN_ID, field, log_in};

const LIST: &[&str] = &["users", "list"];
const STDIN: &str = "--password-stdin";

pub(super) async fn leads_to_the_repair(remediations: &Remediations<'_>) {
    let (ada, _) = remediations.tenant("logins").await;
    credentials(remediations, &ada).await;
    permissions(remediations, &ada).await;
    sessions(remediations, &ada).await;
    passwords(remediations, &ada).await;
    second_factor(remediations, &ada).await;
    device(remediations, &ada).await;
    suspended_tenant(remediations).await;
}

/// A client of the tenant without a login.
fn client(remediations: &Remediations<'_>) -> Svc {
    let run_file = &remediations.run.run_file;
    Svc::new(&run_file.svc, &run_file.base_url, "logins")
}

async fn log_in_as_printed(failure: &Failure<'_>, svc: &Svc, email: &str) {
    failure.run(svc, "auth login", &["--email", email, STDIN], PASSWORD).await;
}

async fn credentials(remediations: &Remediations<'_>, ada: &Svc) {
    let email = "ada@logins.example";
    let svc = client(remediations);
    let failure = remediations.fail(&svc, LIST, "", "not_logged_in").await;
    log_in_as_printed(&failure, &svc, email).await;
    failure.repeat(&svc).await;

    let token = svc.run_ok(&["auth", "token"], "").await;
    let logout = api_client(&remediations.run.run_file.base_url).header("X-Session-ID", token.trim());
    logout.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    let failure = remediations.fail(&svc, LIST, "", "credential_invalid").await;
    failure.run(&svc, "auth login", &[STDIN], PASSWORD).await;
    failure.repeat(&svc).await;

    svc.write(".config/svc/credentials.json", "{");
    let failure = remediations.fail(&svc, LIST, "", "credentials_unusable").await;
    let file = failure
        .remediation
        .split(' ')
        .find_map(|word| word.trim_end_matches('.').strip_suffix(".json"))
        .unwrap();
    std::fs::remove_file(format!("{file}.json")).unwrap();
    log_in_as_printed(&failure, &svc, email).await;
    failure.repeat(&svc).await;

    let anonymous = &["api", "GET", "/users", "--anonymous"];
    let svc = client(remediations);
    let failure = remediations.fail(&svc, anonymous, "", "unauthenticated").await;
    log_in_as_printed(&failure, &svc, email).await;
    svc.run_ok(&anonymous[..3], "").await;

    let failure = remediations.fail(ada, &["users", "list", "--nothing"], "", "usage").await;
    let shown = failure.json(ada, "catalog show", &["users", "list"]).await;
    assert_eq!(shown["name"], "users list");
    let failure = remediations.fail(ada, &["api", "DELETE", "/users"], "", "method_not_allowed").await;
    let document = failure.json(ada, "api GET /openapi.json", &[]).await;
    assert!(document["paths"].as_object().unwrap().keys().any(|path| path.ends_with("/users")), "{document}");

    let typo = client(remediations).with_variable("SVC_CONTEXT", "typo");
    let failure = remediations.fail(&typo, LIST, "", "configuration_invalid").await;
    failure.run(&typo, "config list", &[], "").await;
}

async fn permissions(remediations: &Remediations<'_>, ada: &Svc) {
    let bob = remediations.member(ada, "logins", "bob@logins.example").await;
    let failure = remediations.fail(&bob, LIST, "", "forbidden").await;
    let whoami = failure.json(&bob, "auth whoami", &[]).await;
    bob.run_ok(&["users", "get", field(&whoami, "user_id")], "").await;

    let invite = ["users", "invite", "--email", "carol@logins.example"];
    let failure = remediations.fail(&bob, &invite, "", "forbidden").await;
    log_in_as_printed(&failure, &bob, "ada@logins.example").await;
    failure.repeat(&bob).await;

    let key = async |name, option, value| {
        ada.json(&["api-keys", "create", "--name", name, option, value], "").await
    };
    let with_key = |key: &Value| client(remediations).with_api_key(field(key, "key"));
    let reader = with_key(&key("reader", "--scope", "events:read").await);
    let send = ["events", "send", "--file", "-"];
    let event = r#"{"source_id":"fw"}"#;
    let failure = remediations.fail(&reader, &send, event, "insufficient_scope").await;
    let created = failure.json(ada, "api-keys create", &["events:write", "--name", "writer"]).await;
    failure.repeat(&with_key(&created)).await;
    let failure =
        remediations.fail(&reader, &["doctor", "--scope", "events:write"], "", "scope_missing").await;
    failure.repeat(&with_key(&failure.json(ada, "api-keys create", &[]).await)).await;
    let limited = with_key(&key("limited", "--source-id", "fw").await);
    let post = ["api", "POST", "/events", "--data", r#"{"source_id":"other"}"#];
    let failure = remediations.fail(&limited, &post, "", "source_not_allowed").await;
    let created = failure.json(ada, "api-keys create", &["other", "--name", "other"]).await;
    failure.repeat(&with_key(&created)).await;
}

async fn sessions(remediations: &Remediations<'_>, ada: &Svc) {
    let revoke = ["auth", "sessions", "revoke"];
    let unknown = [&revoke[..], &[UNKNOWN_ID]].concat();
    let failure = remediations.fail(ada, &unknown, "", "not_found").await;
    let listed = failure.json(ada, "auth sessions list", &[]).await;
    let other = listed["items"].as_array().unwrap().iter().find(|item| item["current"] == false).unwrap();
    ada.run_ok(&[&revoke[..], &[field(other, "id")]].concat(), "").await;

    let token = ada.run_ok(&["auth", "token"], "").await.replace("svc_st_", "svc_st_0");
    let failure = remediations.fail(ada, &[&revoke[..], &["-"]].concat(), &token, "session_not_found").await;
    let listed = failure.json(ada, "auth sessions list", &[]).await;
    let current = listed["items"].as_array().unwrap().iter().find(|item| item["current"] == true).unwrap();
    ada.run_ok(&[&revoke[..], &[field(current, "id")]].concat(), "").await;
    log_in(ada, "ada@logins.example", PASSWORD).await;
}

async fn passwords(remediations: &Remediations<'_>, ada: &Svc) {
    let email = "dan@logins.example";
    let dan = remediations.member(ada, "logins", email).await;
    let login = ["auth", "login", "--email", email, STDIN];
    let failure = remediations.fail(&dan, &login, "wrong", "login_failed").await;
    failure.run(&dan, "auth password reset", &["--email", email], "").await;
    let token = remediations.mailed_token(email).await;
    let confirm = ["auth", "password", "confirm-reset", "-", STDIN];
    dan.run_ok(&confirm, &format!("{token}\n{NEW_PASSWORD}\n")).await;
    log_in(&dan, email, NEW_PASSWORD).await;

    let change = ["auth", "password", "change", STDIN];
    let failure = remediations.fail(&dan, &change, "wrong\nyet another staple\n", "login_failed").await;
    failure.run(&dan, "auth password reset", &["--email", email], "").await;

    let failure = remediations.fail(&dan, &confirm, &format!("{token}\n{PASSWORD}\n"), "token_invalid").await;
    failure.run(&dan, "auth password reset", &["--email", email], "").await;
}

async fn second_factor(remediations: &Remediations<'_>, ada: &Svc) {
    let email = "eve@logins.example";
    let eve = remediations.member(ada, "logins", email).await;
    let token = eve.run_ok(&["auth", "token"], "").await;
    let api = api_client(&remediations.run.run_file.base_url).bearer(token.trim());
    let app: Value = api.post("/auth/factors/totp", &Value::Null).await.expect(201);
    let secret = field(&app, "secret");
    let confirm = json!({ "code": totp_after(secret, 0) });
    let codes: Value = api.post("/auth/factors/totp/confirm", &confirm).await.expect(200);
    let codes: Vec<_> =
        codes["recovery_codes"].as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();

    let login = json!({ "email": email, "password": PASSWORD }).to_string();
    let post = ["api", "POST", "/auth/password/login", "--anonymous", "--data", &login];
    let failure = remediations.fail(&eve, &post, "", "second_factor_required").await;
    let with_code = ["--email", email, STDIN, "--code-stdin"];
    let input = |code: &str| format!("{PASSWORD}\n{code}\n");
    failure.run(&eve, "auth login", &with_code, &input(&totp_after(secret, 1))).await;

    let login = [&["auth", "login"][..], &with_code].concat();
    let failure = remediations.fail(&eve, &login, &input("000000"), "second_factor_failed").await;
    failure.run(&eve, "auth login", &with_code, &input(codes[0])).await;

    let answer = json!({ "challenge": "svc_ch_x", "code": "000000" }).to_string();
    let post = ["api", "POST", "/auth/second-factor", "--anonymous", "--data", &answer];
    let failure = remediations.fail(&eve, &post, "", "token_invalid").await;
    failure.run(&eve, "auth login", &with_code, &input(codes[1])).await;

    let failure = remediations.fail(&eve, &["api", "POST", "/auth/factors/totp"], "", "factor_exists").await;
    let listed = failure.json(&eve, "auth factors list", &[]).await;
    let id = field(&listed["items"][0], "factor_id");
    let remove = ["auth", "factors", "remove", UNKNOWN_ID, "--yes"];
    let unknown = remediations.fail(&eve, &remove, "", "not_found").await;
    assert!(unknown.run(&eve, "auth factors list", &[], "").await.contains(&id[..8]));
    failure.run(&eve, "auth factors remove", &[id, "--yes"], "").await;
    failure.repeat(&eve).await;
    // It needs a terminal.
    let output = unknown.try_run(&eve, "auth factors add totp", &["--output", "json"], "").await;
    let failure = remediations.failure(&output, &["auth", "factors", "add", "totp"], "", "input_needed");
    assert!(failure.remediation.contains("terminal"), "{}", failure.remediation);
}

async fn device(remediations: &Remediations<'_>, ada: &Svc) {
    let device = client(remediations);
    let approve = |code| ["auth", "device", "approve", code, "--yes"];
    let failure = remediations.fail(ada, &approve("BCDF-GHJK"), "", "not_found").await;
    let mut login = failure.start(&device, "auth login --device", &["--output", "json"]);
    let mut lines = BufReader::new(login.stderr.take().unwrap()).lines();
    let code = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if let Some(code) = serde_json::from_str::<Value>(&line)
            .ok()
            .and_then(|line| line["device"]["user_code"].as_str().map(str::to_owned))
        {
            break code;
        }
    };
    ada.run_ok(&approve(&code), "").await;
    assert!(login.wait().await.unwrap().success());

    // Not a login with the password.
    let create = ["api-keys", "create", "--name", "k"];
    let failure = remediations.fail(&device, &create, "", "reauthentication_required").await;
    log_in_as_printed(&failure, &device, "ada@logins.example").await;
    failure.repeat(&device).await;
}

async fn suspended_tenant(remediations: &Remediations<'_>) {
    let (ada, _) = remediations.tenant("suspended").await;
    let platform_admin = remediations.platform_admin();
    let key = ada.json(&["api-keys", "create", "--name", "k"], "").await;
    let run_file = &remediations.run.run_file;
    let producer = Svc::new(&run_file.svc, &run_file.base_url, "suspended").with_api_key(field(&key, "key"));
    platform_admin.run_ok(&["tenants", "suspend", "suspended", "--yes"], "").await;

    let of_session = remediations.fail(&ada, LIST, "", "credential_invalid").await;
    let login = of_session.try_run(&ada, "auth login", &[STDIN, "--output", "json"], PASSWORD).await;
    let arguments = ["auth", "login", "--email", "ada@suspended.example", STDIN];
    let of_login = remediations.failure(&login, &arguments, PASSWORD, "login_failed");
    let of_key = wait_until("the key is rejected", async || {
        let send = ["events", "send", "--file", "-", "--output", "json"];
        let output = producer.run(&send, r#"{"source_id":"fw"}"#).await;
        (output.code != Some(0)).then_some(output)
    })
    .await;
    let send = ["events", "send", "--file", "-"];
    let of_key = remediations.failure(&of_key, &send, r#"{"source_id":"fw"}"#, "credential_invalid");
    for failure in [&of_login, &of_key] {
        let tenant = failure.json(&platform_admin, "tenants get", &["suspended"]).await;
        assert_eq!(tenant["status"], "suspended");
    }
    platform_admin.run_ok(&["tenants", "resume", "suspended"], "").await;
    of_login.repeat(&ada).await;
    of_session.repeat(&ada).await;
    wait_until("the key is accepted", async || {
        (producer.run(&send, r#"{"source_id":"fw"}"#).await.code == Some(0)).then_some(())
    })
    .await;
}
