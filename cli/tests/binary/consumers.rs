//! `svc consumers`, with the platform token.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

fn consumer(name: &str) -> Value {
    json!({
        "name": name, "tenant_id": "acme", "event_types": ["USER_LOGIN"], "partitions": {"first": 0, "last": 31},
        "streams": ["UDM"], "created_at": "2026-01-01T00:00:00Z", "pending": 7, "ack_pending": 2, "redelivered": 0, "oldest_unread_seconds": 7300,
        "ack_wait_seconds": 30, "max_ack_pending": 1000, "paused": false,
        "start": "all", "filter_subjects": ["udm.v1.*.acme.USER_LOGIN"],
    })
}

fn with_login(name: &str, active: bool) -> String {
    let mut created = consumer(name);
    created["login"] = json!({ "user": name, "password": "svc_cl_secret", "active": active });
    created.to_string()
}

/// A consumer with a login that is suspended.
fn flooding(with_login: bool) -> String {
    let mut consumer = consumer("flooding");
    consumer["suspension"] = json!({
        "since": "2026-01-01T00:01:00Z", "until": "2026-01-01T00:02:00Z", "messages_per_second": 81_000,
    });
    if with_login {
        consumer["login"] = json!({ "user": "flooding", "password": "svc_cl_secret", "active": false });
    }
    consumer.to_string()
}

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/consumers" if request.json()["name"] == "taken" => problem(ProblemKind::ConsumerExists),
        "POST /api/v1/consumers" if request.json()["name"] == "exists" => {
            let mut existing = consumer("exists");
            existing["login"] = Value::Null;
            (200, existing.to_string())
        }
        "POST /api/v1/consumers" => (201, with_login("acme-logins", true)),
        "POST /api/v1/consumers/archive/rotate-login" => (200, with_login("archive", false)),
        "POST /api/v1/consumers/flooding/rotate-login" => (200, flooding(true)),
        "GET /api/v1/consumers/flooding" => (200, flooding(false)),
        "POST /api/v1/consumers/archive/pause"
        | "POST /api/v1/consumers/archive/resume"
        | "POST /api/v1/consumers/archive/reset"
        | "GET /api/v1/consumers/archive" => (200, consumer("archive").to_string()),
        "GET /api/v1/consumers/_accounts" => (200, json!({"content": "CONSUMER_0 { $2a$ }\n"}).to_string()),
        "GET /api/v1/consumers?limit=200" => {
            (200, json!({"items": [consumer("a")], "next_cursor": "a"}).to_string())
        }
        "GET /api/v1/consumers?limit=200&cursor=a" => {
            let mut paused = consumer("b");
            paused["paused"] = true.into();
            paused["start"] = "2026-01-31T12:00:00Z".into();
            let flooding: Value = serde_json::from_str(&flooding(false)).unwrap();
            (200, json!({"items": [paused, flooding]}).to_string())
        }
        "DELETE /api/v1/consumers/archive" | "DELETE /api/v1/consumers/failing" => (204, String::new()),
        "GET /api/v1/consumers/typed" => {
            let mut typed = consumer("typed");
            typed["event_types"] = json!(["A", "B", "C", "D", "E"]);
            typed["filter_subjects"] =
                json!(["udm.A", "udm.B", "udm.C", "udm.D", "udm.E", "udm.GENERIC_EVENT"]);
            (200, typed.to_string())
        }
        "GET /api/v1/consumers/archive/dead-letters?limit=1" => (200, json!({ "items": [] }).to_string()),
        "GET /api/v1/consumers/failing/dead-letters?limit=1" => {
            let letter = json!({
                "sequence": 1, "tenant_id": "acme", "failed_at": "2026-01-01T00:00:00Z", "event": null,
            });
            (200, json!({ "items": [letter], "next_cursor": "1" }).to_string())
        }
        "GET /api/v1/tenants/acme" => {
            let tenant = json!({
                "tenant_id": "acme", "display_name": "Acme", "status": "active", "created_at": "2026-01-01T00:00:00Z",
                "quota": {"events_per_second": null, "bytes_per_second": null}, "second_factor": "optional",
                "password_min_length": 12, "passkey_login": true,
            });
            (200, tenant.to_string())
        }
        _ => problem(ProblemKind::NotFound),
    }
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
}

#[test]
fn create_prints_the_login_and_a_connection_example() {
    let stub = Stub::new(service);
    let arguments = [
        "consumers",
        "create",
        "acme-logins",
        "--tenant",
        "acme",
        "--event-type",
        "USER_LOGIN",
        "--partitions",
        "0-31",
    ];
    let run = client(&stub).run(&arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("svc_cl_secret"), "{}", run.stdout);
    let example = "  NATS_URL=nats://HOST:4222 NATS_USER=acme-logins NATS_PASSWORD=... nats consumer next UDM acme-logins --ack\n";
    assert!(run.stderr.contains(example) && !run.stderr.contains("consumers config"), "{}", run.stderr);
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
    let expected = json!({
        "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"],
        "partitions": {"first": 0, "last": 31},
    });
    assert_eq!(request.json(), expected);
}

#[test]
fn create_requires_a_tenant_or_all_tenants_and_a_conflict_is_exit_6() {
    let stub = Stub::new(service);
    let client = client(&stub);
    assert_eq!(client.run(&["consumers", "create", "archive"]).code, Some(2));
    let both = ["consumers", "create", "archive", "--tenant", "acme", "--all-tenants"];
    assert_eq!(client.run(&both).code, Some(2));
    assert!(stub.requests().is_empty());
    let run = client.run(&[
        "consumers",
        "create",
        "archive",
        "--all-tenants",
        "--start",
        "new",
        "--ack-wait",
        "60",
        "--max-ack-pending",
        "5",
        "--output",
        "json",
    ]);
    assert_valid_output("consumers create", &run.json());
    assert_eq!(run.stderr, "");
    let expected = json!({
        "name": "archive", "all_tenants": true, "start": "new", "ack_wait_seconds": 60, "max_ack_pending": 5,
    });
    assert_eq!(stub.requests()[0].json(), expected);
    assert_eq!(client.run(&["consumers", "create", "taken", "--all-tenants"]).code, Some(6));
    for invalid in [
        &["a.b"][..],
        &["a", "--partitions", "7"],
        &["a", "--partitions", "5-2"],
        &["a", "--partitions", "0-64"],
        &["a", "--start", "yesterday"],
    ] {
        let run = client.run(&[&["consumers", "create", "--all-tenants"], invalid].concat());
        assert_eq!(run.code, Some(2), "{invalid:?}");
    }
}

#[test]
fn a_tenant_limits_the_list_and_is_an_error_where_it_has_no_effect() {
    let stub = Stub::new(|_| (200, json!({ "items": [consumer("a")] }).to_string()));
    let client = client(&stub);
    assert_eq!(client.run(&["consumers", "list", "--tenant", "acme"]).code, Some(0));
    assert_eq!(stub.request_lines(), ["GET /api/v1/consumers?tenant_id=acme&limit=200"]);
    for command in [
        &["consumers", "get", "a"][..],
        &["consumers", "pause", "a"],
        &["consumers", "delete", "a", "--yes"],
        &["consumers", "rotate-login", "--all", "--yes"],
        &["tenants", "list"],
    ] {
        let result = client.run(&[command, &["--tenant", "acme"]].concat());
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(result.stderr.contains("--tenant has no effect"), "{result:?}");
    }
    assert_eq!(stub.requests().len(), 1);
    let session = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    assert_eq!(session.run(&["consumers", "list", "--all-tenants"]).code, Some(2));
}

#[test]
fn create_warns_about_a_tenant_that_does_not_exist() {
    let stub = Stub::new(service);
    for (tenant, is_warned) in [("acme", false), ("amce", true)] {
        let run = client(&stub).run(&["consumers", "create", "acme-logins", "--tenant", tenant]);
        assert_eq!(run.code, Some(0), "{run:?}");
        // The last line, because the notices about the login are longer.
        let last = run.stderr.lines().last().unwrap_or_default();
        assert_eq!(last.starts_with("warning: tenant amce does not exist"), is_warned, "{run:?}");
        assert!(run.stderr.starts_with("Save the password"), "{run:?}");
    }
}

#[test]
fn create_fails_for_an_existing_consumer_because_its_login_may_be_lost() {
    let stub = Stub::new(service);
    let run = client(&stub).run(&["consumers", "create", "exists", "--all-tenants", "--output", "json"]);
    let error = run.error();
    assert_eq!((run.code, &error["code"]), (Some(6), &json!("consumer_exists")), "{run:?}");
    assert!(
        error["remediation"].as_str().unwrap().contains("`svc consumers rotate-login exists`"),
        "{error}"
    );
    assert_eq!(run.stdout, "");
}

#[test]
fn create_with_all_tenants_names_the_variable_that_sets_a_tenant() {
    let stub = Stub::new(service);
    let client = client(&stub).with_variable("SVC_TENANT", "acme");
    let run = client.run(&["consumers", "create", "archive", "--all-tenants"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("unset the variable"), "{}", run.stderr);
    assert!(stub.requests().is_empty());
}

#[test]
fn rotate_login_asks_and_prints_the_login_that_the_broker_does_not_have_yet() {
    let stub = Stub::new(service);
    let client = client(&stub);
    assert_eq!(client.run(&["consumers", "rotate-login", "archive"]).code, Some(12));
    assert!(stub.requests().is_empty());
    let run = client.run(&["consumers", "rotate-login", "archive", "--yes"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("svc_cl_secret"), "{}", run.stdout);
    assert!(run.stderr.contains("`svc consumers config`"), "{}", run.stderr);
}

#[test]
fn rotate_login_of_all_consumers_prints_the_new_logins_also_if_one_fails() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "POST /api/v1/consumers/a/rotate-login" => (200, with_login("a", true)),
        "POST /api/v1/consumers/b/rotate-login" => problem(ProblemKind::DependencyUnavailable),
        _ => service(request),
    });
    let client = client(&stub);
    assert_eq!(client.run(&["consumers", "rotate-login"]).code, Some(2));
    assert_eq!(client.run(&["consumers", "rotate-login", "a", "--all", "--yes"]).code, Some(2));
    let rotations = || {
        stub.request_lines()
            .iter()
            .filter(|line| line.ends_with("/rotate-login"))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(client.run(&["consumers", "rotate-login", "--all"]).code, Some(12));
    assert!(rotations().is_empty(), "nothing changes without a confirmation");
    let run = client.run(&["consumers", "rotate-login", "--all", "--yes", "--output", "json"]);
    assert_eq!(rotations().len(), 3);
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_valid_output("consumers rotate-login", &printed);
    let users: Vec<_> =
        printed["items"].as_array().unwrap().iter().map(|item| &item["login"]["user"]).collect();
    assert_eq!(users, ["a", "flooding"]);
    let error = run.error();
    assert_eq!((&error["code"], &error["retryable"]), (&json!("dependency_unavailable"), &json!(false)));
    assert!(error["message"].as_str().unwrap().starts_with("failed to replace 1 of 3 logins: b"), "{error}");
    assert!(error["remediation"].as_str().unwrap().contains("the name of each consumer"), "{error}");
    let narrow = client.with_variable("COLUMNS", "60");
    let table = narrow.run(&["consumers", "rotate-login", "--all", "--yes"]);
    assert_eq!(table.stdout.matches("svc_cl_secret").count(), 2, "{}", table.stdout);
    assert!(table.stderr.contains("Save the passwords"), "{}", table.stderr);
}

#[test]
fn rotate_login_of_all_consumers_stops_after_a_lost_response() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "POST /api/v1/consumers/a/rotate-login" => (200, with_login("a", true)),
        "POST /api/v1/consumers/b/rotate-login" => (502, String::new()),
        _ => service(request),
    });
    let run = client(&stub).run(&["consumers", "rotate-login", "--all", "--yes"]);
    assert!(!stub.request_lines().iter().any(|line| line.ends_with("/flooding/rotate-login")), "{run:?}");
    assert!(run.stdout.contains("svc_cl_secret"), "{}", run.stdout);
    assert!(run.stderr.contains("failed to replace 2 of 3 logins: b, flooding"), "{}", run.stderr);
}

#[test]
fn config_prints_exactly_the_file() {
    let stub = Stub::new(service);
    assert_eq!(client(&stub).run(&["consumers", "config"]).stdout, "CONSUMER_0 { $2a$ }\n");
    let printed = client(&stub).run(&["consumers", "config", "--output", "json"]).json();
    assert_valid_output("consumers config", &printed);
    assert_eq!(printed, json!({ "content": "CONSUMER_0 { $2a$ }\n" }));
}

#[test]
fn config_replaces_a_file_in_one_step_and_only_its_owner_can_read_it() {
    let stub = Stub::new(service);
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("consumers.conf"), directory.path().join("link"));
    let config = |file: &Path| {
        client(&stub).run(&["consumers", "config", "--file", file.to_str().unwrap(), "--output", "json"])
    };
    std::fs::write(&path, "longer than the new content of the file\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let opened = std::fs::File::open(&path).unwrap();
    std::os::unix::fs::symlink("consumers.conf", &link).unwrap();
    let written = config(&link).json();
    assert_valid_output("consumers config", &written);
    assert_eq!(written, json!({ "file": link.to_str().unwrap() }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "CONSUMER_0 { $2a$ }\n");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let previous = std::io::read_to_string(opened).unwrap();
    assert!(previous.starts_with("longer"), "a reader keeps the previous file: {previous}");
    // No temporary file remains, also after a failure.
    let failed = config(directory.path());
    let error = &failed.error()["message"];
    assert!(error.as_str().unwrap().starts_with("cannot write to "), "{error}");
    let missing = config(&directory.path().join("missing/consumers.conf"));
    assert_eq!((failed.code, missing.code), (Some(1), Some(1)));
    let mut names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["consumers.conf", "link"]);
    assert_eq!(
        client(&stub).run(&["consumers", "config", "--file", path.to_str().unwrap()]).stdout,
        "File replaced.\n"
    );
}

#[test]
fn a_consumer_is_shown_paused_resumed_and_reset() {
    let stub = Stub::new(service);
    let client = client(&stub);
    for command in ["get", "pause", "resume"] {
        let run = client.run(&["consumers", command, "archive", "--output", "json"]);
        assert_valid_output(&format!("consumers {command}"), &run.json());
    }
    let resumed = client.run(&["consumers", "resume", "archive"]);
    assert!(resumed.stderr.contains("gets the stored events with the next event"), "{}", resumed.stderr);
    let shown = client.run(&["consumers", "get", "archive"]).stdout;
    let age = shown.lines().find_map(|line| line.trim_start().strip_prefix("oldest unread"));
    assert_eq!(age.map(str::trim), Some("2 h"), "{shown}");
    let reset = ["consumers", "reset", "archive", "--to", "2026-01-31T12:00:00Z", "--output", "json"];
    assert_eq!(client.run(&reset).code, Some(12));
    let run = client.run(&[&reset[..], &["--yes"]].concat());
    assert_valid_output("consumers reset", &run.json());
    let text = client.run(&["consumers", "reset", "archive", "--to", "all", "--yes"]);
    assert!(text.stderr.contains("Restart the programs"), "{}", text.stderr);
    let requests = stub.requests();
    assert!(
        requests
            .iter()
            .any(|request| request.line.ends_with("reset") && request.json()["to"] == "2026-01-31T12:00:00Z")
    );
}

#[test]
fn tables_show_the_first_types_and_subjects_and_json_has_all() {
    let stub = Stub::new(service);
    let table = client(&stub).run(&["consumers", "get", "typed"]).stdout;
    assert!(table.contains("  A B C and 2 more\n"), "{table}");
    assert!(table.contains("  udm.A udm.B udm.C and 3 more\n"), "{table}");
    let json = client(&stub).run(&["consumers", "get", "typed", "--output", "json"]).json();
    assert_eq!(json["filter_subjects"].as_array().map(Vec::len), Some(6));
}

#[test]
fn a_suspension_of_a_login_is_shown_with_its_end_and_its_reason() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let shown = client.run(&["consumers", "get", "flooding"]).stdout;
    let field = |name| shown.lines().find_map(|line| line.trim_start().strip_prefix(name)).map(str::trim);
    assert_eq!(field("suspended until"), Some("2026-01-01T00:02:00Z"), "{shown}");
    assert_eq!(field("suspended because"), Some("81000 messages per second"), "{shown}");
    let rotated = client.run(&["consumers", "rotate-login", "flooding", "--yes"]).stderr;
    let expected = "The login is suspended until 2026-01-01T00:02:00Z. `svc consumers resume flooding` ends";
    assert!(rotated.contains(expected) && !rotated.contains("reload the broker"), "{rotated}");
}

#[test]
fn list_reads_all_pages() {
    let stub = Stub::new(service);
    let listed = client(&stub).run(&["consumers", "list", "--output", "json"]).json();
    assert_valid_output("consumers list", &listed);
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, ["a", "b", "flooding"]);
    let table = client(&stub).run(&["consumers", "list"]).stdout;
    assert!(table.starts_with("CONSUMER") && table.contains("USER_LOGIN"), "{table}");
    assert!(table.contains("BEHIND") && table.contains("  2 h  "), "{table}");
    assert!(table.contains("\nb (paused)  ") && !table.contains("a (paused)"), "{table}");
    assert!(table.contains("\nflooding (suspended)  "), "{table}");
    let column = table.find("START").unwrap();
    let starts: Vec<_> =
        table.lines().skip(1).map(|line| line[column..].split("  ").next().unwrap()).collect();
    assert_eq!(starts, ["all", "2026-01-31T12:00:00Z", "all"]);
    assert_eq!(listed["items"][0]["oldest_unread_seconds"], 7300);
}

#[test]
fn a_watched_list_is_printed_again_until_an_error() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let stub = Stub::new(|_| match COUNT.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => (200, json!({"items": [consumer("a")]}).to_string()),
        _ => problem(ProblemKind::NotFound),
    });
    let run = client(&stub).with_variable("COLUMNS", "40").run(&["consumers", "list", "--watch"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert_eq!(run.stdout.matches("CONSUMER").count(), 2, "{}", run.stdout);
    assert_eq!(run.stderr.matches("omitted: ").count(), 1, "{}", run.stderr);
}

#[test]
fn delete_asks_for_confirmation() {
    let stub = Stub::new(service);
    let client = client(&stub);
    assert_eq!(client.run(&["consumers", "delete", "archive"]).code, Some(12));
    assert!(stub.request_lines().iter().all(|line| line.starts_with("GET ")), "nothing is deleted");
    let deleted = client.run(&["consumers", "delete", "archive", "--yes", "--output", "json"]).json();
    assert_valid_output("consumers delete", &deleted);
    assert_eq!(deleted, json!({"name": "archive", "deleted": true}));
    assert_eq!(client.run(&["consumers", "delete", "unknown", "--yes"]).code, Some(3));
    for (name, is_warned) in [("archive", false), ("failing", true)] {
        let run = client.run(&["consumers", "delete", name, "--yes"]);
        assert_eq!((run.code, run.stderr.contains("has dead letters")), (Some(0), is_warned), "{run:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_login_that_could_not_be_printed_is_replaced() {
    let stub = Stub::new(service);
    let create = ["consumers", "create", "acme-logins", "--tenant", "acme"];
    let rotate = ["consumers", "rotate-login", "archive", "--yes"];
    for (command, remediation) in
        [(&create[..], "svc consumers rotate-login"), (&rotate, "Run the command again")]
    {
        for is_full in [true, false] {
            let result = client(&stub).run_without_output(command, is_full);
            let error = result.error();
            assert_eq!(
                (result.code, error["code"].as_str()),
                (Some(13), Some("response_lost")),
                "{result:?}"
            );
            assert!(error["remediation"].as_str().unwrap().contains(remediation), "{error}");
        }
    }
}
