//! `svc tenants`, with the platform token.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "GET /api/v1/tenants?limit=200" => {
            (200, json!({"items": [tenant("acme")], "next_cursor": "a b&c"}).to_string())
        }
        "GET /api/v1/tenants?limit=200&cursor=a+b%26c" => {
            (200, json!({"items": [tenant("umbrella")]}).to_string())
        }
        "GET /api/v1/tenants/acme" => (200, tenant("acme").to_string()),
        "DELETE /api/v1/tenants/acme" => (204, String::new()),
        "DELETE /api/v1/tenants/active" => problem(ProblemKind::TenantActive),
        "POST /api/v1/tenants" => (201, tenant("acme").to_string()),
        _ => problem(ProblemKind::NotFound),
    }
}

fn tenant(id: &str) -> Value {
    json!({
        "tenant_id": id, "display_name": id, "status": "active", "created_at": "2026-01-01T00:00:00Z",
        "quota": {"events_per_second": null, "bytes_per_second": null}, "second_factor": "optional",
        "password_min_length": 12, "passkey_login": true,
    })
}

#[test]
fn reads_the_platform_token_from_a_file() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let file = client.home().join("platform-token");
    std::fs::write(&file, "svc_pt_file\n").unwrap();
    let client = client.with_variable("SVC_PLATFORM_TOKEN_FILE", file.to_str().unwrap());
    let create =
        ["tenants", "create", "acme", "--admin-email", "ada@acme.example", "--events-per-second", "10"];
    assert_eq!(client.run(&create).code, Some(0));
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_pt_file"));
    let quota = json!({"events_per_second": 10, "bytes_per_second": null});
    let expected = json!({
        "tenant_id": "acme", "display_name": "acme", "admin_email": "ada@acme.example", "delivery": "email", "quota": quota,
        "second_factor": "optional", "passkey_login": true,
    });
    assert_eq!(request.json(), expected);
    let unreadable =
        client.with_variable("SVC_PLATFORM_TOKEN_FILE", "/nonexistent").run(&["tenants", "list"]);
    assert_eq!(unreadable.code, Some(11));
}

#[test]
fn lists_tenants_of_all_pages() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let listed = client.run(&["tenants", "list", "--output", "json"]).json();
    let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|tenant| &tenant["tenant_id"]).collect();
    assert_eq!(ids, ["acme", "umbrella"]);
    assert_eq!(client.run(&["tenants", "get", "umbrella"]).code, Some(3));
    assert_eq!(Client::for_url(&stub.url).run(&["tenants", "list"]).code, Some(4));
}

#[test]
fn changes_one_limit_of_a_quota_and_removes_it() {
    let stub = Stub::new(|request| {
        let mut tenant = tenant("acme");
        tenant["quota"] = json!({"events_per_second": 5, "bytes_per_second": 1000});
        if request.line.starts_with("PATCH") {
            tenant["quota"] = request.json()["quota"].clone();
        }
        (200, tenant.to_string())
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    for (arguments, quota) in [
        (&["--events-per-second", "7"][..], json!({"events_per_second": 7, "bytes_per_second": 1000})),
        (&["--bytes-per-second", "default"], json!({"events_per_second": 5, "bytes_per_second": null})),
        (
            &["--events-per-second", "default", "--bytes-per-second", "default"],
            json!({"events_per_second": null, "bytes_per_second": null}),
        ),
    ] {
        let update = [&["tenants", "update", "acme", "--output", "json"], arguments].concat();
        let tenant = client.run(&update).json();
        assert_eq!(tenant["quota"], quota, "{arguments:?}");
        assert_valid_output("tenants update", &tenant);
        let requests = stub.requests();
        assert_eq!(requests.last().unwrap().line, "PATCH /api/v1/tenants/acme");
        assert_eq!(requests.last().unwrap().json(), json!({"quota": quota}));
    }
    let shown = client.run(&["tenants", "update", "acme", "--bytes-per-second", "default"]).stdout;
    let value = |name: &str| shown.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
    assert_eq!(value("events per second").as_deref(), Some("5"), "{shown}");
    assert_eq!(value("bytes per second").as_deref(), Some("default"), "{shown}");
}

#[test]
fn renames_a_tenant_without_reading_its_quota_and_rejects_invalid_limits() {
    let stub = Stub::new(|_| (200, tenant("acme").to_string()));
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let rename = ["tenants", "update", "acme", "--display-name", "Acme Ltd"];
    assert_eq!(client.run(&rename).code, Some(0));
    assert_eq!(stub.requests()[0].json(), json!({"display_name": "Acme Ltd"}));
    for verb in ["update", "create"] {
        for limit in ["0", "-1", "4294967296", "many"] {
            let events = format!("--events-per-second={limit}");
            let result = client.run(&["tenants", verb, "acme", &events]);
            assert_eq!(result.code, Some(2), "{verb} {limit}");
            assert!(result.stderr.contains("2147483647") || limit == "many", "{}", result.stderr);
        }
        let result = client.run(&["tenants", verb, "acme", "--bytes-per-second=1MiB"]);
        assert_eq!(result.code, Some(2), "{verb}");
        assert!(result.stderr.contains("--bytes-per-second <BYTES>"), "{}", result.stderr);
    }
    assert_eq!(client.run(&["tenants", "update", "acme"]).code, Some(2), "nothing to change");
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn suspends_and_resumes_a_tenant() {
    let stub = Stub::new(|request| {
        let tenant = json!({
            "tenant_id": "acme", "display_name": "Acme", "status": request.json()["status"], "quota": {},
            "second_factor": "optional", "password_min_length": 12, "passkey_login": true,
            "created_at": "2026-01-01T00:00:00Z",
        });
        (200, tenant.to_string())
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    for (arguments, status) in [
        (&["tenants", "suspend", "acme", "--yes"][..], "suspended"),
        (&["tenants", "resume", "acme"], "active"),
    ] {
        let tenant = client.run(&[arguments, &["--output", "json"]].concat()).json();
        assert_eq!(tenant["status"], status);
        assert_valid_output(&format!("tenants {}", arguments[1]), &tenant);
        let request = stub.requests();
        let request = request.last().unwrap();
        assert_eq!(
            (request.line.as_str(), request.json()),
            ("PATCH /api/v1/tenants/acme", json!({"status": status}))
        );
        assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
    }
}

#[test]
fn deletes_a_tenant_with_yes_and_names_how_to_suspend_an_active_one() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let without_yes = client.run(&["tenants", "delete", "acme", "--output", "json"]);
    assert_eq!((without_yes.code, &without_yes.error()["code"]), (Some(12), &json!("input_needed")));
    assert_eq!(stub.requests().len(), 0);
    let deleted = client.run(&["tenants", "delete", "acme", "--yes", "--output", "json"]).json();
    assert_eq!(deleted, json!({ "tenant_id": "acme", "deleted": true }));
    assert_valid_output("tenants delete", &deleted);
    assert_eq!(stub.request_lines(), ["DELETE /api/v1/tenants/acme"]);
    let active = client.run(&["tenants", "delete", "active", "--yes", "--output", "json"]).error();
    assert_eq!(active["code"], "tenant_active");
    assert!(active["remediation"].as_str().unwrap().contains("svc tenants suspend"), "{active}");
}

#[cfg(target_os = "linux")]
#[test]
fn deletes_a_tenant_at_a_terminal_only_if_its_id_is_typed() {
    use crate::terminal::run_at_terminal;

    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let delete = |answer| run_at_terminal(&client, &["tenants", "delete", "acme"], answer);
    for answer in ["y\n", "\n", "acme2\n", "\u{4}"] {
        let result = delete(answer);
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(result.stderr.contains("nothing was changed"), "{result:?}");
    }
    assert!(stub.request_lines().iter().all(|line| line.starts_with("GET")));
    let result = delete("acme\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.stderr.contains("Delete tenant acme (\"acme\") for good"), "{result:?}");
    assert_eq!(stub.request_lines().last().unwrap(), "DELETE /api/v1/tenants/acme");
}

#[test]
fn sets_the_rules_for_logins_and_rejects_other_values() {
    let stub = Stub::new(|request| {
        let mut tenant = tenant("acme");
        tenant.as_object_mut().unwrap().extend(request.json().as_object().unwrap().clone());
        (200, tenant.to_string())
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let rules =
        ["--second-factor", "administrators", "--password-min-length", "20", "--passkey-login", "off"];
    let update = [&["tenants", "update", "acme", "--output", "json"], &rules[..]].concat();
    let tenant = client.run(&update).json();
    assert_valid_output("tenants update", &tenant);
    let sent = json!({"second_factor": "administrators", "password_min_length": 20, "passkey_login": false});
    assert_eq!(stub.requests().last().unwrap().json(), sent);
    let shown = client.run(&[&["tenants", "update", "acme", "--output", "table"], &rules[..]].concat());
    assert!(shown.stdout.contains("administrators") && shown.stdout.contains("20"), "{shown:?}");
    assert_eq!(client.run(&[&["tenants", "create", "acme"], &rules[..]].concat()).code, Some(0));
    let created = stub.requests().last().unwrap().json();
    assert_eq!(
        (&created["second_factor"], &created["password_min_length"], &created["passkey_login"]),
        (&sent["second_factor"], &json!(20), &json!(false))
    );
    for rule in [
        "--second-factor=all",
        "--password-min-length=129",
        "--password-min-length=none",
        "--passkey-login=no",
    ] {
        assert_eq!(client.run(&["tenants", "update", "acme", rule]).code, Some(2), "{rule}");
    }
}
