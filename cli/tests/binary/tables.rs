//! Tables at different widths, on terminals and elsewhere.

use std::io::Write;

use chrono::{TimeDelta, Utc};
use contract::ProblemKind;
use serde_json::json;

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{read_until, resize, rest_of, terminal};

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0";

#[expect(clippy::disallowed_methods, reason = "the client shows times relative to the real time")]
fn service(request: &StubRequest) -> (u16, String) {
    let at = |minutes| Utc::now() + TimeDelta::minutes(minutes) + TimeDelta::seconds(20);
    let session = |id: &str, client: &str, used: i64| {
        json!({
            "id": id, "created_at": at(-9_000), "last_seen_at": at(used), "expires_at": at(600),
            "idle_expires_at": at(61), "method": "password", "ip": "192.0.2.117", "user_agent": client,
            "current": used > -2,
        })
    };
    match request.line.split('?').next() {
        Some("GET /api/v1/auth/sessions") => {
            let sessions = [
                session("01890a5d-ac96-774b-bcce-b302099a8057", "svc/0.1.0", -1),
                session("01890a5d-bc96-774b-bcce-b302099a8058", "svc/0.1.0", -180),
                session("01890a5e-1c96-774b-bcce-b302099a8059", BROWSER, -7_200),
            ];
            (200, json!({"items": sessions}).to_string())
        }
        Some("GET /api/v1/users") => {
            let user = json!({
                "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "email": "ada@acme.example", "role": "admin",
                "status": "active", "created_at": at(-500_000), "updated_at": at(-5),
            });
            (200, json!({"items": [user]}).to_string())
        }
        _ => problem(ProblemKind::NotFound),
    }
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme")
}

fn sessions(stub: &Stub, columns: &str) -> String {
    let list = ["auth", "sessions", "list", "--user-id", "01890a5d-ac96-774b-bcce-b302099a8057"];
    let result = client(stub).with_variable("COLUMNS", columns).run(&list);
    assert_eq!(result.code, Some(0), "{result:?}");
    result.stdout
}

#[test]
fn the_session_table_shows_method_client_and_last_use_at_80_columns() {
    let stub = Stub::new(service);
    let expected = "\
           ID             METHOD    CLIENT               LAST USED  EXPIRES  ADDRESS\n\
        *  01890a5d-ac96  password  svc/0.1.0            40 s ago   in 1 h   192.0.2.117\n   \
           01890a5d-bc96  password  svc/0.1.0            2 h ago    in 1 h   192.0.2.117\n   \
           01890a5e-1c96  password  Mozilla/5.0 (X11; …  4 d ago    in 1 h   192.0.2.117\n";
    assert_eq!(sessions(&stub, "80"), format!("   {expected}"));
    assert!(sessions(&stub, "60").lines().all(|line| line.chars().count() <= 60));
    assert!(sessions(&stub, "200").contains("-b302099a8059  password  Mozilla/5.0 (X11; Linux"));
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
    read_until(&mut keyboard, "Tenant: ");
    resize(&terminal, 60);
    keyboard.write_all(b"acme\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(terminal);
    let printed = rest_of(keyboard);
    assert!(printed.contains("\r\n01890a5d-ac96  ada@acme.example  admin"), "{printed}");
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
