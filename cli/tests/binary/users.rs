//! `svc users`: listing, showing and changing users.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn user(number: usize) -> Value {
    json!({
        "user_id": ID, "email": format!("u{number}@acme.example"), "role": "member", "status": "active",
        "locked": false, "factors_locked_until": null, "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    })
}

/// 450 users, in pages of the requested size or 50.
fn many(request: &StubRequest) -> (u16, String) {
    let url = url::Url::parse(&format!("http://stub{}", request.line.split(' ').nth(1).unwrap())).unwrap();
    let number = |name| {
        let found = url.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.parse::<usize>().unwrap())
    };
    let (from, limit) = (number("cursor").unwrap_or(0), number("limit").unwrap_or(50));
    let to = (from + limit).min(450);
    let next = (to < 450).then(|| to.to_string());
    (200, json!({"items": (from..to).map(user).collect::<Vec<_>>(), "next_cursor": next}).to_string())
}

fn one(request: &StubRequest) -> (u16, String) {
    match request.line.split_once(' ').unwrap() {
        ("GET", path) if path == format!("/api/v1/users/{ID}") => (200, user(1).to_string()),
        ("PATCH", path) if path == format!("/api/v1/users/{ID}") => {
            let mut changed = user(1);
            for (name, value) in request.json().as_object().unwrap() {
                changed[name] = value.clone();
            }
            (200, changed.to_string())
        }
        ("GET", path) if path.starts_with("/api/v1/users?email=") => {
            let found = if path.contains("=u1%40acme.example&") { vec![user(1)] } else { vec![] };
            (200, json!({ "items": found }).to_string())
        }
        ("DELETE", path) if path == format!("/api/v1/users/{ID}") => (204, String::new()),
        ("PATCH" | "DELETE", _) => problem(ProblemKind::LastAdmin),
        _ => problem(ProblemKind::NotFound),
    }
}

fn listed(client: &Client, options: &[&str]) -> (usize, String) {
    let result = client.run(&[&["users", "list", "--output", "json"], options].concat());
    assert_valid_output("users list", &result.json());
    (result.json()["items"].as_array().unwrap().len(), result.stderr)
}

#[test]
fn all_pages_are_read_up_to_the_limit() {
    let stub = Stub::new(many);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x");
    assert_eq!(listed(&client, &["--limit", "7"]).0, 7);
    assert_eq!(listed(&client, &["--limit", "250"]).0, 250);
    assert_eq!(
        stub.request_lines(),
        ["GET /api/v1/users?limit=7", "GET /api/v1/users?limit=200", "GET /api/v1/users?limit=50&cursor=200"]
    );
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_ak_x"));
    for complete in [&[][..], &["--limit", "450"], &["--limit", "100000"]] {
        assert_eq!(listed(&client, complete), (450, String::new()), "{complete:?}");
    }
    for wrong in [&["--limit", "0"][..], &["--all"], &["--status", "nonsense"]] {
        assert_eq!(client.run(&[&["users", "list"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn sends_filters_to_the_service() {
    let stub = Stub::new(many);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    listed(&client, &["--email", "a+b@acme.example", "--status", "disabled", "--tenant", "acme"]);
    let first = &stub.request_lines()[0];
    assert_eq!(first, "GET /api/v1/users?email=a%2Bb%40acme.example&status=disabled&limit=200");
    assert_eq!(stub.requests()[0].header("x-tenant-id"), Some("acme"));
}

#[test]
fn shows_a_user_by_id() {
    let stub = Stub::new(one);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let seen = client.run(&["users", "get", ID, "--output", "json"]).json();
    assert_eq!(seen, user(1));
    assert_valid_output("users get", &seen);
    let other = "01890a5d-ac96-774b-bcce-b302099a8099";
    assert_eq!(client.run(&["users", "get", other]).code, Some(3));
    assert_eq!(client.run(&["users", "get", "bob"]).code, Some(2));
}

#[test]
fn shows_a_lockout_and_what_ends_it() {
    let stub = Stub::new(|_| {
        let mut locked = user(1);
        locked["locked"] = json!(true);
        (200, locked.to_string())
    });
    let shown = |url: &str| {
        let table = Client::for_url(url).with_variable("SVC_TOKEN", "svc_st_x").run(&["users", "get", ID]);
        table.stdout.lines().find(|line| line.contains("locked")).map(str::to_owned)
    };
    assert!(shown(&stub.url).unwrap().contains("svc users enable"));
    assert_eq!(shown(&Stub::new(one).url), None);
}

#[test]
fn shows_until_when_the_second_factor_is_locked() {
    let stub = Stub::new(|_| {
        let mut locked = user(1);
        locked["factors_locked_until"] = json!("2030-01-01T00:00:00Z");
        (200, locked.to_string())
    });
    let shown = |url: &str| {
        let client = Client::for_url(url).with_variable("SVC_TOKEN", "svc_st_x");
        client.run(&["users", "get", ID]).stdout.contains("factors locked until")
    };
    assert!(shown(&stub.url) && !shown(&Stub::new(one).url));
}

#[test]
fn changes_status_and_role() {
    let stub = Stub::new(one);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let cases: [(&[&str], Value); 6] = [
        (&["disable", ID, "--yes"], json!({"status": "disabled"})),
        (&["enable", ID], json!({"status": "active"})),
        (&["set-role", ID, "admin"], json!({"role": "admin"})),
        (
            &["disable", ID, "--yes", "--revoke-api-keys"],
            json!({"status": "disabled", "revoke_api_keys": true}),
        ),
        (
            &["set-role", ID, "member", "--revoke-api-keys", "--yes"],
            json!({"role": "member", "revoke_api_keys": true}),
        ),
        (&["set-role", ID, "member"], json!({"role": "member"})),
    ];
    for (place, (arguments, patch)) in cases.iter().enumerate() {
        let changed = client.run(&[&["users"], *arguments, &["--output", "json"]].concat()).json();
        let (field, value) =
            patch.as_object().unwrap().iter().find(|(field, _)| *field != "revoke_api_keys").unwrap();
        assert_eq!(changed[field], *value, "{arguments:?}");
        assert_valid_output(&format!("users {}", arguments[0]), &changed);
        let request = &stub.requests()[place];
        assert_eq!((request.line.as_str(), &request.json()), (&*format!("PATCH /api/v1/users/{ID}"), patch));
        assert_eq!(request.header("authorization"), Some("Bearer svc_st_x"));
    }
    let last = client.run(&["users", "disable", "01890a5d-ac96-774b-bcce-b302099a8099", "--yes"]);
    assert_eq!(last.code, Some(6), "{last:?}");
}

#[test]
fn deletes_a_user_by_address_or_id() {
    let stub = Stub::new(one);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let delete = |user: &str| client.run(&["users", "delete", user, "--yes", "--output", "json"]);
    let by_id = json!({ "user_id": ID, "deleted": true });
    let by_address = json!({ "user_id": ID, "deleted": true, "email": "u1@acme.example" });
    for (user, expected) in [("u1@acme.example", by_address), (ID, by_id)] {
        let deleted = delete(user).json();
        assert_eq!(deleted, expected);
        assert_valid_output("users delete", &deleted);
        let requests = stub.requests();
        assert_eq!(requests.last().unwrap().line, format!("DELETE /api/v1/users/{ID}"));
        assert_eq!(requests.last().unwrap().header("authorization"), Some("Bearer svc_st_x"));
    }
    assert_eq!(delete("gone@acme.example").code, Some(3));
    assert_eq!(delete("01890a5d-ac96-774b-bcce-b302099a8099").error()["code"], "last_admin");
}

#[test]
fn platform_administrator_enables_users_but_cannot_change_roles() {
    let stub = Stub::new(one);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    assert_eq!(client.run(&["users", "enable", ID, "--tenant", "acme"]).code, Some(0));
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
    assert_eq!(request.header("x-tenant-id"), Some("acme"));
    assert_eq!(client.run(&["users", "set-role", ID, "admin", "--tenant", "acme"]).code, Some(4));
}

#[test]
fn platform_administrator_lists_and_shows_users_of_a_tenant_but_exports_none() {
    let stub = Stub::new(one);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let result = client.run(&["users", "list", "--email", "u1@acme.example", "--tenant", "acme"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    let request = &stub.requests()[0];
    assert_eq!(
        (request.header("authorization"), request.header("x-tenant-id")),
        (Some("Bearer svc_pt_x"), Some("acme"))
    );
    let seen = client.run(&["users", "get", "u1@acme.example", "--tenant", "acme", "--output", "json"]);
    assert_eq!(seen.json(), user(1), "{seen:?}");
    assert!(stub.requests().iter().all(|request| request.header("x-tenant-id") == Some("acme")));
    let result = client.run(&["users", "export", ID, "--tenant", "acme", "--output", "json"]);
    let message = result.error()["message"].as_str().unwrap().to_owned();
    assert_eq!(result.code, Some(4), "{result:?}");
    assert!(message.starts_with("this command does not accept the platform token"), "{message}");
}

#[test]
fn exports_the_data_and_the_audit_events_of_a_person() {
    let stub = Stub::new(|request| {
        let account = json!({
            "tenant_id": "acme", "user": user(1), "invites": [], "sessions": [], "api_keys": [],
        });
        let event = json!({
            "position": "p17", "id": ID, "occurred_at": "2026-01-31T12:00:00Z", "tenant_id": "acme",
            "context": "identity", "event": "user_created", "actor": { "type": "user", "user_id": ID },
        });
        let owner = json!({
            "subject_type": "user", "user_id": ID, "tenant_id": "acme", "role": "member", "scopes": [],
            "method": "password", "expires_at": "2030-01-01T00:00:00Z",
        });
        match request.line.split(' ').nth(1).unwrap() {
            "/api/v1/auth/session" => (200, owner.to_string()),
            path if path == format!("/api/v1/users/{ID}/export") => (200, account.to_string()),
            path if path == format!("/api/v1/audit?user_id={ID}&limit=200") => {
                (200, json!({ "items": [event] }).to_string())
            }
            _ => problem(ProblemKind::NotFound),
        }
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    for user in [&[ID][..], &[]] {
        let export = client.run(&[&["users", "export", "--output", "json"], user].concat()).json();
        assert_valid_output("users export", &export);
        assert_eq!(export["user"]["email"], "u1@acme.example");
        assert_eq!(export["audit_events"][0]["position"], "p17");
    }
    let table = client.run(&["users", "export", ID]);
    assert!(table.stdout.contains("audit events") && table.stdout.contains("u1@acme.example"), "{table:?}");
    assert_eq!(client.run(&["users", "export", "01890a5d-ac96-774b-bcce-b302099a8099"]).code, Some(3));
}
