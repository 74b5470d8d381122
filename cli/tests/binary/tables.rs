//! Tables at different widths, on terminals and elsewhere.

use std::io::Write;

use chrono::{TimeDelta, Utc};
use contract::ProblemKind;
use serde_json::json;

use crate::client::Client;
use crate::snapshots::assert_snapshot;
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{read_until, resize, rest_of, terminal};

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0";

#[expect(clippy::disallowed_methods, reason = "the client shows times relative to the real time")]
fn service(request: &StubRequest) -> (u16, String) {
    // All shown times are hours or days, with at least half an hour until the next one.
    let at = |minutes| Utc::now() + TimeDelta::minutes(minutes);
    let session = |id: &str, client: &str, used: i64| {
        let ip = if client == BROWSER { "2001:db8:85a3:8d3:1319:8a2e:370:7348" } else { "192.0.2.117" };
        json!({
            "id": id, "created_at": at(-9_000), "last_seen_at": at(used), "expires_at": at(630),
            "idle_expires_at": at(90), "method": "password", "ip": ip, "user_agent": client,
            "current": used == -90,
        })
    };
    let items = match request.line.split('?').next() {
        Some("GET /api/v1/auth/sessions") => vec![
            session("01890a5d-ac96-774b-bcce-b302099a8057", "svc/0.1.0", -90),
            session("01890a5d-bc96-774b-bcce-b302099a8058", "svc/0.1.0", -210),
            session("01890a5e-1c96-774b-bcce-b302099a8059", BROWSER, -7_900),
        ],
        Some("GET /api/v1/users") => vec![json!({
            "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "email": "ada@acme.example", "role": "admin",
            "status": "active", "locked": false, "created_at": at(-500_000), "updated_at": at(-5),
        })],
        Some("GET /api/v1/users/invites") => vec![json!({
            "invite_id": "01890a5d-ac96-774b-bcce-b302099a8057", "email": "a.person.with.a.long.name@acme.example",
            "role": "member", "status": "pending", "created_at": at(-210), "expires_at": at(4_000),
            "mail": {"status": "failed", "error": "550 5.1.1 no such user"},
        })],
        Some("GET /api/v1/api-keys") => vec![json!({
            "id": "01890a5d-ac96-774b-bcce-b302099a8057", "name": "forwarder of the firewall in the first data center",
            "scopes": ["events:write"], "source_ids": ["fw-1", "fw-2"], "created_at": at(-210),
            "created_by": "01890a5d-ac96-774b-bcce-b302099a8058", "expires_at": at(129_000), "last_used_at": at(-90),
        })],
        Some("GET /api/v1/tenants") => vec![json!({
            "tenant_id": "acme", "display_name": "Acme Corporation with a name that does not fit on the line",
            "status": "active", "created_at": at(-500_000), "quota": {}, "second_factor": "optional", "password_min_length": 12, "passkey_login": true,
        })],
        Some("GET /api/v1/audit") => vec![json!({
            "position": "p17", "id": "01890a5d-ac96-774b-bcce-b302099a8057", "occurred_at": at(-90),
            "tenant_id": "acme", "context": "identity", "event": "authn_login_fail", "count": 7,
            "actor": {"type": "anonymous"}, "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "ip": "192.0.2.117",
        })],
        Some("GET /api/v1/consumers") => vec![json!({
            "name": "archive", "tenant_id": "acme", "event_types": ["USER_LOGIN", "USER_LOGOUT"], "streams": ["UDM"],
            "partitions": {"first": 0, "last": 31}, "created_at": at(-90), "pending": 1_200_000, "ack_pending": 2,
            "redelivered": 0, "ack_wait_seconds": 30, "max_ack_pending": 1000, "paused": false,
            "start": "all", "filter_subjects": ["udm.v1.*.acme.USER_LOGIN"],
        })],
        Some("GET /api/v1/consumers/archive/dead-letters") => vec![json!({
            "sequence": 17, "tenant_id": "acme", "source_id": "firewall-1", "event_id": "01890a5d-ac96-774b-bcce",
            "event_type": "USER_LOGIN", "failed_at": at(-90), "reason": "the table has no such column: last_seen_at",
            "attempts": 5, "event": {"source_id": "firewall-1"},
        })],
        _ => return problem(ProblemKind::NotFound),
    };
    (200, json!({"items": items}).to_string())
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url)
        .with_variable("SVC_TOKEN", "svc_st_x")
        .with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
        .with_variable("SVC_TENANT", "acme")
}

/// Output of a command on a terminal of this width.
fn shown(stub: &Stub, words: &[&str], columns: u16) -> String {
    let (screen, terminal) = terminal();
    resize(&terminal, columns);
    let client = client(stub);
    let mut command = client.command(words);
    let mut child = command.stdout(terminal).spawn().unwrap();
    drop(command);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{words:?}");
    let shown = rest_of(screen).replace("\r\n", "\n");
    assert!(shown.lines().all(|line| line.chars().count() <= usize::from(columns)), "{shown}");
    shown
}

#[test]
fn the_session_table_shows_client_last_use_and_address_at_80_columns() {
    let stub = Stub::new(service);
    let list = ["auth", "sessions", "list", "--user-id", "01890a5d-ac96-774b-bcce-b302099a8057"];
    for columns in [60, 80, 120] {
        assert_snapshot(&format!("sessions_{columns}"), &shown(&stub, &list, columns));
    }
}

#[test]
fn tables_fit_80_columns() {
    let stub = Stub::new(service);
    for group in ["users", "invites", "api-keys", "tenants", "audit", "consumers"] {
        assert_snapshot(&format!("{group}_80"), &shown(&stub, &[group, "list"], 80));
    }
    assert_snapshot("dlq_80", &shown(&stub, &["events", "dlq", "list", "archive"], 80));
    for words in [["config", "list"], ["auth", "status"]] {
        shown(&stub, &words, 80);
    }
}

#[test]
fn invites_show_the_mail_before_times_and_name_the_omitted_columns() {
    let stub = Stub::new(service);
    let client = client(&stub).with_variable("COLUMNS", "80");
    let list = client.run(&["invites", "list"]);
    assert!(
        list.stdout.contains("  a.person.with.a.lon…  ") && list.stdout.contains("  failed: "),
        "{list:?}"
    );
    let omitted = "omitted: ROLE, EXPIRES, CREATED; a wider terminal or -o json shows them\n";
    assert!(list.stderr.contains(omitted), "{list:?}");
    for complete in
        [&["invites", "list", "--quiet"][..], &["invites", "list", "-o", "json"], &["tenants", "list"]]
    {
        let list = client.run(complete);
        assert!(!list.stderr.contains("omitted"), "{list:?}");
    }
}

#[test]
fn a_terminal_gets_a_table_of_its_width_also_after_a_change() {
    let stub = Stub::new(service);
    let (mut keyboard, terminal) = terminal();
    resize(&terminal, 120);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let mut command = client.command(&["users", "list"]);
    let end = || terminal.try_clone().unwrap();
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop(command);
    read_until(&keyboard, "Tenant: ");
    resize(&terminal, 60);
    keyboard.write_all(b"acme\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(terminal);
    let printed = rest_of(keyboard);
    let table =
        "\r\n01890a5d-ac96-774b-bcce-b302099a8057  ada@acme.example\r\nomitted: ROLE, STATUS, CREATED; ";
    assert!(printed.contains(table), "{printed}");
}

#[test]
fn other_programs_get_complete_ids_and_times() {
    let stub = Stub::new(service);
    let table = client(&stub).run(&["users", "list"]).stdout;
    assert!(
        table.contains("01890a5d-ac96-774b-bcce-b302099a8057  ada@acme.example  admin  active  20"),
        "{table}"
    );
    assert!(!table.contains(" ago"), "{table}");
    let wide = client(&stub).with_variable("COLUMNS", "120").run(&["users", "list"]).stdout;
    assert!(wide.contains("-774b-bcce-b302099a8057  ") && wide.contains("347 d ago"), "{wide}");
}
