//! Users: listing them page by page, seeing one, and changing how they stand.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Asked, Stub, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn user(number: usize) -> Value {
    json!({
        "user_id": ID, "email": format!("u{number}@acme.example"), "role": "member", "status": "active",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    })
}

/// 450 users, in pages as long as they are asked for, 50 when they are not.
fn many(asked: &Asked) -> (u16, String) {
    let url = url::Url::parse(&format!("http://stub{}", asked.line.split(' ').nth(1).unwrap())).unwrap();
    let number = |name| {
        let found = url.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.parse::<usize>().unwrap())
    };
    let (from, limit) = (number("cursor").unwrap_or(0), number("limit").unwrap_or(50));
    let to = (from + limit).min(450);
    let next = (to < 450).then(|| to.to_string());
    (200, json!({"items": (from..to).map(user).collect::<Vec<_>>(), "next_cursor": next}).to_string())
}

fn one(asked: &Asked) -> (u16, String) {
    match asked.line.split_once(' ').unwrap() {
        ("GET", path) if path == format!("/api/v1/users/{ID}") => (200, user(1).to_string()),
        ("PATCH", path) if path == format!("/api/v1/users/{ID}") => {
            let mut changed = user(1);
            for (name, value) in asked.json().as_object().unwrap() {
                changed[name] = value.clone();
            }
            (200, changed.to_string())
        }
        ("PATCH", _) => problem(ProblemKind::LastAdmin),
        _ => problem(ProblemKind::NotFound),
    }
}

fn listed(client: &Client, options: &[&str]) -> (usize, String) {
    let ran = client.run(&[&["users", "list", "--output", "json"], options].concat());
    assert_valid_output("users list", &ran.json());
    (ran.json()["items"].as_array().unwrap().len(), ran.stderr)
}

#[test]
fn one_page_is_listed_with_a_warning_when_there_are_more() {
    let stub = Stub::answering(many);
    let client = Client::of(&stub.url).with("SVC_API_KEY", "svc_ak_x");
    let (count, said) = listed(&client, &[]);
    assert_eq!(count, 50);
    assert!(said.starts_with(r#"{"warning":"#) && said.contains("50") && said.contains("--all"), "{said}");
    let table = client.run(&["users", "list"]);
    assert!(table.stdout.starts_with("ID ") && table.stderr.starts_with("warning: "), "{table:?}");
    assert_eq!(stub.lines(), ["GET /api/v1/users", "GET /api/v1/users"]);
    assert_eq!(stub.asked()[0].header("authorization"), Some("Bearer svc_ak_x"));
}

#[test]
fn a_limit_counts_items_over_all_pages_and_all_means_all() {
    let stub = Stub::answering(many);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    assert_eq!(listed(&client, &["--limit", "7"]), (7, String::new()));
    assert_eq!(listed(&client, &["--limit", "250"]), (250, String::new()));
    assert_eq!(listed(&client, &["--limit", "100000"]), (450, String::new()));
    assert_eq!(listed(&client, &["--all"]), (450, String::new()));
    assert_eq!(
        stub.lines()[..3],
        ["GET /api/v1/users?limit=7", "GET /api/v1/users?limit=200", "GET /api/v1/users?limit=50&cursor=200"]
    );
    for wrong in [&["--limit", "0"][..], &["--limit", "5", "--all"], &["--status", "nonsense"]] {
        assert_eq!(client.run(&[&["users", "list"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn what_is_asked_for_is_asked_of_the_service() {
    let stub = Stub::answering(many);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    listed(&client, &["--email", "a+b@acme.example", "--status", "disabled", "--tenant", "acme"]);
    assert_eq!(stub.lines(), ["GET /api/v1/users?email=a%2Bb%40acme.example&status=disabled"]);
    assert_eq!(stub.asked()[0].header("x-tenant-id"), Some("acme"));
}

#[test]
fn one_user_is_seen_by_id() {
    let stub = Stub::answering(one);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let seen = client.run(&["users", "get", ID, "--output", "json"]).json();
    assert_eq!(seen, user(1));
    assert_valid_output("users get", &seen);
    let other = "01890a5d-ac96-774b-bcce-b302099a8099";
    assert_eq!(client.run(&["users", "get", other]).code, Some(3));
    assert_eq!(client.run(&["users", "get", "bob@acme.example"]).code, Some(2));
}

#[test]
fn standing_and_role_are_changed_one_at_a_time() {
    let stub = Stub::answering(one);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let cases: [(&[&str], Value); 4] = [
        (&["disable", ID, "--yes"], json!({"status": "disabled"})),
        (&["enable", ID], json!({"status": "active"})),
        (&["set-role", ID, "admin"], json!({"role": "admin"})),
        (&["set-role", ID, "member"], json!({"role": "member"})),
    ];
    for (place, (arguments, patch)) in cases.iter().enumerate() {
        let changed = client.run(&[&["users"], *arguments, &["--output", "json"]].concat()).json();
        let (field, value) = patch.as_object().unwrap().iter().next().unwrap();
        assert_eq!(changed[field], *value, "{arguments:?}");
        assert_valid_output(&format!("users {}", arguments[0]), &changed);
        let asked = &stub.asked()[place];
        assert_eq!((asked.line.as_str(), &asked.json()), (&*format!("PATCH /api/v1/users/{ID}"), patch));
        assert_eq!(asked.header("authorization"), Some("Bearer svc_st_x"));
    }
    let last = client.run(&["users", "disable", "01890a5d-ac96-774b-bcce-b302099a8099", "--yes"]);
    assert_eq!(last.code, Some(6), "{last:?}");
}

#[test]
fn the_operator_enables_in_the_tenant_that_is_named_but_gives_no_role() {
    let stub = Stub::answering(one);
    let client = Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x");
    assert_eq!(client.run(&["users", "enable", ID, "--tenant", "acme"]).code, Some(0));
    let asked = &stub.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer svc_pt_x"));
    assert_eq!(asked.header("x-tenant-id"), Some("acme"));
    assert_eq!(client.run(&["users", "set-role", ID, "admin", "--tenant", "acme"]).code, Some(4));
}

#[test]
fn a_tenant_is_suspended_and_resumed_by_the_operator() {
    let stub = Stub::answering(|asked| {
        let tenant = json!({
            "tenant_id": "acme", "display_name": "Acme", "status": asked.json()["status"], "quota": {},
            "created_at": "2026-01-01T00:00:00Z",
        });
        (200, tenant.to_string())
    });
    let client = Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x");
    for (arguments, status) in [
        (&["tenants", "suspend", "acme", "--yes"][..], "suspended"),
        (&["tenants", "resume", "acme"], "active"),
    ] {
        let tenant = client.run(&[arguments, &["--output", "json"]].concat()).json();
        assert_eq!(tenant["status"], status);
        assert_valid_output(&format!("tenants {}", arguments[1]), &tenant);
        let asked = stub.asked();
        let asked = asked.last().unwrap();
        assert_eq!(
            (asked.line.as_str(), asked.json()),
            ("PATCH /api/v1/tenants/acme", json!({"status": status}))
        );
        assert_eq!(asked.header("authorization"), Some("Bearer svc_pt_x"));
    }
}
