//! `svc auth factors` and `svc users reset-factors`.

use std::io::Write;

use contract::ProblemKind;
use serde_json::json;

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{read_until, rest_of, terminal};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

/// A service with one account, which has an app. The code 123 456 confirms another one.
fn service(request: &StubRequest) -> (u16, String) {
    let codes = json!({ "recovery_codes": ["MZXW-6YTB-OI2D-G7QA", "ABCD-EFGH-IJKL-MNOP"] });
    match request.line.split('?').next().unwrap() {
        "GET /api/v1/auth/factors" => {
            let factor = json!({
                "factor_id": ID, "type": "totp", "created_at": "2026-01-01T00:00:00Z", "last_used_at": null,
            });
            (200, json!({ "factors": [factor], "recovery_codes": 9 }).to_string())
        }
        "POST /api/v1/auth/factors/totp" => {
            let uri = format!("otpauth://totp/svc:ada?secret={SECRET}&issuer=svc");
            (201, json!({ "factor_id": ID, "secret": SECRET, "uri": uri, "qr_code": "<svg/>" }).to_string())
        }
        "POST /api/v1/auth/factors/totp/confirm" if request.json()["code"] == "123 456" => {
            (200, codes.to_string())
        }
        "POST /api/v1/auth/factors/totp/confirm" => problem(ProblemKind::ValidationFailed),
        "POST /api/v1/auth/factors/recovery-codes" => (201, codes.to_string()),
        "PATCH /api/v1/auth/factors/01890a5d-ac96-774b-bcce-b302099a8057" => {
            let factor = json!({
                "factor_id": ID, "type": "passkey", "name": request.json()["name"],
                "created_at": "2026-01-01T00:00:00Z", "last_used_at": "2026-01-02T00:00:00Z",
            });
            (200, factor.to_string())
        }
        "DELETE /api/v1/auth/factors/01890a5d-ac96-774b-bcce-b302099a8057"
        | "DELETE /api/v1/users/01890a5d-ac96-774b-bcce-b302099a8057/factors" => (204, String::new()),
        "GET /api/v1/users" => {
            let user = json!({
                "user_id": ID, "email": "bob@acme.example", "role": "member", "status": "active",
                "locked": false, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            });
            (200, json!({ "items": [user] }).to_string())
        }
        _ => problem(ProblemKind::NotFound),
    }
}

/// A service with a tenant that requires a factor.
fn strict_service(request: &StubRequest) -> (u16, String) {
    if request.line.starts_with("DELETE") { problem(ProblemKind::LastFactor) } else { service(request) }
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme")
}

#[test]
fn lists_the_factors_and_the_number_of_recovery_codes() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let listed = client.run(&["auth", "factors", "list", "--output", "json"]).json();
    assert_valid_output("auth factors list", &listed);
    assert_eq!((&listed["items"][0]["factor_id"], &listed["recovery_codes"]), (&json!(ID), &json!(9)));
    let shown = client.run(&["auth", "factors", "list", "--output", "table"]).stdout;
    assert!(shown.contains("authenticator app") && shown.contains("2026-01-01"), "{shown}");
    let empty = Stub::new(|_| (200, json!({ "factors": [], "recovery_codes": 0 }).to_string()));
    let shown = self::client(&empty).run(&["auth", "factors", "list", "--output", "table"]);
    assert!(format!("{shown:?}").contains("svc auth factors add totp"), "{shown:?}");
}

#[test]
fn adds_an_app_at_a_terminal_with_a_qr_code_the_secret_and_its_address() {
    let (stub, (mut keyboard, terminal)) = (Stub::new(service), terminal());
    let client = client(&stub);
    let mut command = client.command(&["auth", "factors", "add", "totp"]);
    let (stdin, stderr) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
    let child = command.stdin(stdin).stderr(stderr).spawn().unwrap();
    drop(command);
    let shown = read_until(&keyboard, "Code of the app: ");
    let rows: Vec<_> = shown.lines().filter(|line| line.contains(['\u{2588}', '\u{2580}'])).collect();
    let width = rows.first().map_or(0, |row| row.trim_end().chars().count());
    assert!(width <= 80 && rows.len() * 2 >= width && rows.len() * 2 <= width + 2, "not a square: {shown}");
    assert!(shown.contains(SECRET) && shown.contains("otpauth://totp/svc:ada?secret="), "{shown}");
    keyboard.write_all(b"000000\n").unwrap();
    read_until(&keyboard, "Code of the app: ");
    keyboard.write_all(b"123 456\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    drop(terminal);
    assert!(rest_of(keyboard).contains("not shown again"));
    assert_eq!(stub.requests().last().unwrap().json(), json!({ "code": "123 456" }));
}

#[test]
fn without_a_terminal_no_app_is_added_and_nothing_is_sent() {
    let stub = Stub::new(service);
    let result = client(&stub).run(&["auth", "factors", "add", "totp", "--output", "json"]);
    assert_eq!(
        (result.code, result.error()["code"].as_str()),
        (Some(12), Some("input_needed")),
        "{result:?}"
    );
    assert!(!result.stdout.contains('\u{2588}') && !result.stderr.contains('\u{2588}'), "{result:?}");
    assert!(stub.requests().is_empty());
}

#[test]
fn removes_a_factor_after_confirmation_unless_the_tenant_requires_it() {
    let stub = Stub::new(service);
    let remove = ["auth", "factors", "remove", ID, "--output", "json"];
    let confirmed = [&remove[..], &["--yes"]].concat();
    assert_eq!(client(&stub).run(&remove).code, Some(12));
    assert!(stub.requests().is_empty());
    let removed = client(&stub).run(&confirmed).json();
    assert_valid_output("auth factors remove", &removed);
    assert_eq!(removed, json!({ "factor_id": ID, "removed": true }));
    let strict = Stub::new(strict_service);
    let result = client(&strict).run(&confirmed);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(6), Some("last_factor")), "{result:?}");
    assert!(
        result.error()["remediation"].as_str().unwrap().contains("svc users reset-factors"),
        "{result:?}"
    );
}

#[test]
fn renames_a_passkey() {
    let stub = Stub::new(service);
    let rename = ["auth", "factors", "rename", ID, "my laptop", "--output"];
    let renamed = client(&stub).run(&[&rename[..], &["json"]].concat()).json();
    assert_valid_output("auth factors rename", &renamed);
    assert_eq!((&renamed["factor_id"], &renamed["name"]), (&json!(ID), &json!("my laptop")));
    assert_eq!(stub.requests().last().unwrap().json(), json!({ "name": "my laptop" }));
    let shown = client(&stub).run(&[&rename[..], &["table"]].concat()).stdout;
    assert!(shown.contains("my laptop") && shown.contains("passkey") && shown.contains(ID), "{shown}");
}

#[test]
fn an_app_has_no_name() {
    let stub = Stub::new(service);
    let app = "01890a5d-ac96-774b-bcce-b302099a8058";
    let error = client(&stub).run(&["auth", "factors", "rename", app, "phone", "--output", "json"]).error();
    assert_eq!(error["message"], format!("you have no passkey {app}"));
    assert!(error["remediation"].as_str().unwrap().contains("apps have no name"), "{error}");
}

#[test]
fn replaces_the_recovery_codes_after_confirmation() {
    let stub = Stub::new(service);
    let unconfirmed = client(&stub).run(&["auth", "factors", "recovery-codes", "--output", "json"]);
    assert_eq!(unconfirmed.error()["code"], "input_needed", "{unconfirmed:?}");
    assert!(stub.requests().is_empty());
    let codes = client(&stub).run(&["auth", "factors", "recovery-codes", "--yes", "--output", "json"]);
    assert_valid_output("auth factors recovery-codes", &codes.json());
    assert_eq!(codes.json()["recovery_codes"][1], "ABCD-EFGH-IJKL-MNOP");
    let text = client(&stub).run(&["auth", "factors", "recovery-codes", "--yes", "--output", "table"]);
    assert_eq!(text.stdout, "MZXW-6YTB-OI2D-G7QA\nABCD-EFGH-IJKL-MNOP\n");
    assert!(text.stderr.contains("not shown again"), "{text:?}");
}

#[test]
fn an_administrator_resets_the_factors_of_a_user_after_confirmation() {
    let stub = Stub::new(service);
    let reset = ["users", "reset-factors", "bob@acme.example", "--output", "json"];
    let platform = client(&stub).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    for client in [client(&stub), platform] {
        let before = stub.requests().len();
        assert_eq!(client.run(&reset).code, Some(12));
        assert!(!stub.requests()[before..].iter().any(|request| request.line.starts_with("DELETE")));
        let result = client.run(&[&reset[..], &["--yes"]].concat()).json();
        assert_valid_output("users reset-factors", &result);
        assert_eq!(result, json!({ "user_id": ID, "reset": true, "email": "bob@acme.example" }));
        let line = format!("DELETE /api/v1/users/{ID}/factors");
        assert_eq!(stub.requests().last().unwrap().line, line);
    }
}
