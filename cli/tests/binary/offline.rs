//! Behavior without a service: help, usage errors, invalid configuration, and an unreachable service.

use std::io::Read;
use std::net::TcpListener;

use crate::client::{Client, assert_valid_output};

/// URL of a port that was free and that no process listens on.
fn unused_url() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

#[test]
fn unreachable_service_is_exit_status_9() {
    let client = Client::for_url(&unused_url()).with_variable("SVC_TOKEN", "svc_st_x");
    let result = client.run(&["auth", "whoami", "--output", "json"]);
    assert_eq!(result.code, Some(9), "{result:?}");
    assert_eq!(result.stdout, "");
    let error = result.error();
    assert_eq!(error["code"], "unreachable");
    assert_eq!(error["retryable"], true);
    assert!(error["request_id"].is_string());
}

#[test]
fn timeout_is_exit_status_9() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::for_url(&format!("http://{}", silent.local_addr().unwrap()))
        .with_variable("SVC_TOKEN", "svc_st_x");
    let result = client.run(&["auth", "whoami", "--output", "json", "--timeout", "200ms"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(9), Some("timed_out")));
}

#[test]
fn json_error_has_the_specified_fields() {
    let error = Client::new().run(&["auth", "whoami", "--output", "json"]).error();
    let mut fields: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["code", "exit_code", "message", "remediation", "request_id", "retryable"]);
    assert_eq!((error["code"].as_str(), error["exit_code"].as_i64()), (Some("not_logged_in"), Some(4)));
}

#[test]
fn text_error_contains_the_remediation() {
    let result = Client::new().run(&["auth", "whoami"]);
    assert!(result.stderr.starts_with("error: not logged in to http://localhost:8080\n"), "{result:?}");
    assert!(result.stderr.contains("what to do: Run `svc auth login`"), "{result:?}");
    assert!(!result.stderr.contains('\u{1b}'), "no color without a terminal");
}

#[test]
fn usage_error_is_exit_status_2() {
    for arguments in [
        &["nonsense"][..],
        &["auth", "login", "--nonsense"],
        &["auth", "sessions", "revoke"],
        &["help", "nonsense"],
    ] {
        let client = Client::new();
        assert_eq!(client.run(arguments).code, Some(2), "{arguments:?}");
        let structured = [arguments, &["--output", "json"]].concat();
        let error = client.run(&structured).error();
        assert_eq!(error["code"], "usage", "{arguments:?}");
        assert_eq!(client.run(&[arguments, &["-qojson"]].concat()).error()["code"], "usage", "{arguments:?}");
        assert_eq!(Client::new().with_variable("SVC_OUTPUT", "json").run(arguments).error()["code"], "usage");
    }
}

#[test]
fn missing_arguments_are_described() {
    for (line, expected) in [
        ("users get", "\n  <USER_ID>  E-mail address or id of the user\n"),
        ("config set", "\n  <SETTING>  Setting\n  <VALUE>    New value\n\nUsage: "),
        ("events send", "\n  --file <FILE>  File with events; `-` reads standard input\n\nUsage: "),
        ("tenants update", "\n  <--display-name <NAME>|"),
        ("tenants update", "\n  <TENANT_ID>  Tenant id\n\nUsage: "),
    ] {
        let result = Client::new().run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(result.stderr.contains(expected), "{result:?}");
    }
}

#[test]
fn numbers_out_of_range_are_described() {
    for (line, expected) in [
        ("users list --limit 0", "'--limit <COUNT>': expected a number from 1 to 4294967295"),
        ("users list --limit -1", "'--limit <COUNT>': expected a number from 1 to 4294967295"),
        ("tenants create acme --events-per-second many", "expected a number from 1 to 2147483647"),
        ("events send --file - --batch-size 1001", "expected a number from 1 to 1000"),
        ("events dlq show _ingest first", "expected a number from 1 to "),
        ("consumers create archive --ack-wait 0", "expected a number from 1 to 3600"),
    ] {
        let result = Client::new().run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(result.stderr.contains(expected), "{result:?}");
    }
}

#[test]
fn suggests_the_full_name_of_a_command() {
    let client = Client::new();
    for (line, expected) in [
        ("login", "`svc auth login`"),
        ("logout", "`svc auth logout`"),
        ("whoami", "`svc auth whoami`"),
        ("sessions list", "`svc auth sessions`"),
        ("send --file x", "`svc events send`"),
        ("validate", "`svc events validate` or `svc catalog validate`"),
        ("catalog list", "`svc catalog show` or `svc catalog validate`"),
        ("audit show", "`svc audit list`"),
        ("auth rename x", "`svc auth factors rename`"),
    ] {
        let result = client.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(result.stderr.contains(&format!("did you mean {expected}?")), "{result:?}");
    }
    let structured = client.run(&["login", "--output", "json"]).error();
    assert!(structured["message"].as_str().unwrap().contains("did you mean `svc auth login`?"));
    assert!(!client.run(&["nonsense"]).stderr.contains("did you mean"));
    let users = client.run(&["users", "remove", "x"]).stderr;
    assert!(users.contains("`svc users delete`") && !users.contains("svc auth"), "{users}");
    // Similar names.
    assert!(client.run(&["users", "lst"]).stderr.contains("'list'"));
}

#[test]
fn usage_line_does_not_depend_on_the_environment() {
    let set = Client::for_url("http://127.0.0.1:1")
        .with_variable("SVC_TENANT", "acme")
        .with_variable("SVC_OUTPUT", "table");
    for line in
        ["events send", "auth login --nonsense", "auth nonsense", "auth sessions revoke", "users list x"]
    {
        let words: Vec<_> = line.split_whitespace().collect();
        let result = set.run(&words);
        assert_eq!(result.stderr, Client::new().run(&words).stderr);
        assert!(result.stderr.contains("Usage: svc") && !result.stderr.contains("<URL>\n"), "{result:?}");
    }
    let send = set.run(&["events", "send"]).stderr;
    assert!(send.contains("Usage: svc events send [OPTIONS] --file <FILE>\n"), "{send}");
}

#[test]
fn help_and_version_are_printed_to_stdout() {
    let client = Client::new();
    for arguments in [&["--help"][..], &["auth", "--help"], &["events", "send", "--help"], &["--version"]] {
        let result = client.run(arguments);
        assert_eq!((result.code, result.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(!result.stdout.is_empty());
    }
    let help = client.run(&["--help"]).stdout;
    for expected in ["Identity:", "Events:", "Tools:", "Examples:", "svc auth login"] {
        assert!(help.contains(expected), "{expected}: {help}");
    }
    assert_eq!(client.run(&["--version"]).stdout, concat!("svc ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn missing_input_without_a_terminal_names_the_option() {
    let client = Client::for_url(&unused_url());
    let cases: [(&[&str], &str); 4] = [
        (&["auth", "login"], "--tenant"),
        (&["auth", "login", "--tenant", "acme"], "--email"),
        (&["auth", "login", "--tenant", "acme", "--email", "a@acme.example"], "--password-stdin"),
        (&["users", "accept-invite"], "--token-file"),
    ];
    for (arguments, option) in cases {
        let result = client.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(result.code, Some(12), "{result:?}");
        assert!(result.error()["remediation"].as_str().unwrap().contains(option), "{result:?}");
    }
}

#[test]
fn invalid_base_url_is_exit_status_11() {
    let result = Client::for_url("svc.example")
        .with_variable("SVC_TOKEN", "x")
        .run(&["auth", "whoami", "--output", "json"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(11), Some("configuration_invalid")));
}

#[test]
fn warns_once_about_plain_http_and_option_overrides_variable() {
    let client = Client::for_url(&unused_url()).with_variable("SVC_TOKEN", "x");
    let elsewhere =
        ["auth", "whoami", "--base-url", "http://192.0.2.1:9", "--timeout", "100ms", "--output", "json"];
    let result = client.run(&elsewhere);
    assert_eq!(result.stderr.lines().count(), 2, "{result:?}");
    assert!(result.stderr.starts_with(r#"{"warning":"#) && result.stderr.contains("192.0.2.1"), "{result:?}");
    assert!(!client.run(&["auth", "whoami"]).stderr.contains("warning"));
}

#[cfg(unix)]
#[test]
fn rejects_credentials_that_other_users_can_access() {
    use std::os::unix::fs::PermissionsExt;

    let client = Client::new();
    std::fs::create_dir_all(client.credentials().parent().unwrap()).unwrap();
    std::fs::write(client.credentials(), "{}").unwrap();
    std::fs::set_permissions(client.credentials(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let result = client.run(&["auth", "status", "--output", "json"]);
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(11), Some("credentials_exposed")));
    let advice = error["remediation"].as_str().unwrap();
    assert!(advice.contains(&format!("chmod 600 '{}'", client.credentials().display())), "{advice}");
    // Commands without credentials do not fail.
    assert_eq!(client.run(&["version"]).code, Some(0));
    assert_eq!(client.run(&["config", "path"]).code, Some(0));
}

#[test]
fn prints_completion_scripts_unescaped() {
    let client = Client::new();
    for shell in ["bash", "zsh", "fish"] {
        let result = client.run(&["completion", shell]);
        assert_eq!(result.code, Some(0), "{result:?}");
        assert!(result.stdout.contains("accept-invite") && !result.stdout.contains("\\u{"), "{shell}");
    }
}

#[test]
fn json_output_of_offline_commands_matches_its_schema() {
    let client = Client::new().with_variable("SVC_TOKEN", "svc_st_x");
    for line in
        ["version --client", "config path", "auth status", "auth token", "completion bash", "catalog show"]
    {
        let arguments: Vec<_> = line.split(' ').chain(["--output", "json"]).collect();
        let printed = client.run(&arguments).json();
        assert_valid_output(line.trim_end_matches(" bash").trim_end_matches(" --client"), &printed);
    }
}

#[test]
fn output_to_a_closed_pipe_is_exit_status_141_without_an_error() {
    let client = Client::new().with_variable("SVC_TOKEN", "svc_st_x");
    for line in ["--help", "--version", "auth", "help auth", "auth status", "auth token", "completion bash"] {
        for format in ["table", "json"] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let words: Vec<_> = line.split(' ').chain(["--output", format]).collect();
            let result = client.command(&words).stdout(writer).output().unwrap();
            assert_eq!((result.status.code(), &result.stderr[..]), (Some(141), &b""[..]), "{words:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_that_closes_during_the_output_is_exit_status_141_without_an_error() {
    let client = Client::new();
    let mut child = client.command(&["catalog", "show"]).spawn().unwrap();
    // The catalog is larger than the buffer of a pipe, so the client is still writing when the pipe closes.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(141), ""));
}
