//! Remediations: the text alone is enough to repair the command, in terms of the command line.

use std::collections::BTreeSet;

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// Error of a command that fails with this exit status.
fn error_of(stub: &Stub, arguments: &[&str], input: &str, code: i32) -> Value {
    let client = Client::for_url(&stub.url)
        .with_variable("SVC_TOKEN", "svc_st_x")
        .with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
        .with_variable("SVC_TENANT", "acme");
    let result = client.run_with(&[arguments, &["--output", "json"]].concat(), input);
    assert_eq!(result.code, Some(code), "{result:?}");
    result.error()
}

fn text(error: &Value, field: &str) -> String {
    error[field].as_str().unwrap().to_owned()
}

#[test]
fn missing_object_is_named_with_the_command_that_lists_it() {
    let stub = Stub::new(|_| problem(ProblemKind::NotFound));
    let cases: [(&[&str], &str, &str); 8] = [
        (&["users", "get", ID], "User not found", "svc users list"),
        (&["users", "set-role", ID, "admin"], "User not found", "svc users list"),
        (&["auth", "sessions", "revoke", ID], "Session not found", "svc auth sessions list"),
        (&["invites", "resend", ID], "Invite not found", "svc invites list"),
        (&["api-keys", "revoke", ID, "--yes"], "API key not found", "svc api-keys list"),
        (&["tenants", "get", "nope"], "Tenant not found", "svc tenants list"),
        (&["consumers", "delete", "nope", "--yes"], "Consumer not found", "svc consumers list"),
        (
            &["auth", "device", "approve", "BCDF-GHJK"],
            "No device waits for this code",
            "svc auth login --device",
        ),
    ];
    for (arguments, message, advice) in cases {
        let error = error_of(&stub, arguments, "", 3);
        assert_eq!((text(&error, "code"), text(&error, "message")), ("not_found".into(), message.into()));
        assert!(text(&error, "remediation").contains(advice), "{error}");
    }
}

#[test]
fn pending_invite_is_named_by_its_id() {
    fn service(request: &StubRequest) -> (u16, String) {
        match request.line.as_str() {
            "GET /api/v1/users/invites?status=pending&limit=200" => {
                let invite = |id: &str, email: &str| {
                    json!({
                        "invite_id": id, "email": email, "role": "member", "status": "pending",
                        "expires_at": "2030-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z",
                    })
                };
                let other = invite("01890a5d-ac96-774b-bcce-b302099a8058", "eve@acme.example");
                (200, json!({"items": [other, invite(ID, "Bob@acme.example")]}).to_string())
            }
            _ => problem(ProblemKind::InvitePending),
        }
    }
    let error = error_of(&Stub::new(service), &["users", "invite", "--email", "bob@acme.example"], "", 6);
    let advice = text(&error, "remediation");
    assert!(advice.contains(&format!("svc invites resend {ID}")), "{advice}");
    assert!(advice.contains(&format!("svc invites revoke {ID}")), "{advice}");

    // An API key may invite but not list.
    let stub = Stub::new(|_| problem(ProblemKind::InvitePending));
    let error = error_of(&stub, &["users", "invite", "--email", "bob@acme.example"], "", 6);
    assert!(text(&error, "remediation").contains("svc invites list --status pending"), "{error}");
}

#[test]
fn wrong_current_password_is_not_a_failed_login() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "GET /api/v1/auth/session" => {
            let whoami = json!({
                "subject_type": "user", "user_id": ID, "tenant_id": "acme", "role": "admin", "scopes": [],
                "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        _ => problem(ProblemKind::LoginFailed),
    });
    let arguments = ["auth", "password", "change", "--password-stdin"];
    let error = error_of(&stub, &arguments, "wrong\ncorrect horse battery\n", 4);
    assert!(text(&error, "remediation").starts_with("Check the current password."), "{error}");
}

#[test]
fn used_token_leads_to_a_new_one_of_its_kind() {
    let stub = Stub::new(|_| problem(ProblemKind::TokenInvalid));
    for (command, token, message, advice) in [
        (&["users", "accept-invite"][..], "svc_iv_x", "The invite token is not valid", "svc invites resend"),
        (
            &["auth", "password", "confirm-reset"],
            "svc_pr_x",
            "The reset token is not valid",
            "svc auth password reset",
        ),
    ] {
        let arguments = [command, &["-", "--password-stdin"]].concat();
        let error = error_of(&stub, &arguments, &format!("{token}\ncorrect horse battery\n"), 7);
        assert_eq!(text(&error, "message"), message);
        assert!(text(&error, "remediation").contains(advice), "{error}");
    }
}

#[test]
fn login_to_another_service_is_named() {
    let stub = Stub::new(|_| {
        let session = json!({
            "session_id": "svc_st_x", "token_type": "Bearer", "user_id": ID, "tenant_id": "acme", "role": "admin",
            "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
        });
        (200, session.to_string())
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_TENANT", "acme");
    let login = ["auth", "login", "--email", "ada@acme.example", "--password-stdin"];
    assert_eq!(client.run_with(&login, "correct horse battery\n").code, Some(0));
    let client = client.with_variable("SVC_BASE_URL", "http://127.0.0.1:1");
    let result = client.run(&["users", "list", "--output", "json"]);
    let advice = text(&result.error(), "remediation");
    assert_eq!((result.code, text(&result.error(), "code")), (Some(4), "not_logged_in".to_owned()));
    assert!(
        advice.contains(&format!("tenant acme of {}", stub.url))
            && advice.contains("--base-url")
            && advice.contains("svc auth switch"),
        "{advice}"
    );
}

#[test]
fn unknown_command_leads_to_the_list_of_commands() {
    let result = Client::new().run(&["users", "forget", "--output", "json"]);
    assert_eq!(text(&result.error(), "message"), "unrecognized subcommand 'forget'");
    assert!(text(&result.error(), "remediation").contains("svc catalog show --summary"), "{result:?}");
    let result = Client::new().run(&["users", "list", "--status", "x", "--output", "json"]);
    let message = text(&result.error(), "message");
    assert!(message.ends_with("[possible values: invited, active, disabled]"), "{message}");
}

#[test]
fn accepted_invite_cannot_be_revoked_but_its_user_can_be_disabled() {
    let stub = Stub::new(|_| problem(ProblemKind::UserExists));
    let error = error_of(&stub, &["invites", "revoke", ID, "--yes"], "", 6);
    assert_eq!(text(&error, "message"), "The invite was accepted");
    assert!(text(&error, "remediation").contains("svc users disable"), "{error}");
    let error = error_of(&stub, &["users", "invite", "--email", "bob@acme.example"], "", 6);
    assert!(text(&error, "remediation").contains("svc users enable"), "{error}");
}

#[test]
fn a_redirect_names_its_target() {
    let redirects = Stub::new(|_| (308, "<html>moved</html>".to_owned()));
    let error = error_of(&redirects, &["users", "list"], "", 1);
    assert!(text(&error, "message").contains("redirects to https://svc.example/api/v1"), "{error}");
    assert!(text(&error, "remediation").contains("`svc doctor`"), "{error}");
    let error = error_of(&redirects, &["events", "send", "-f", "-"], "{\"source_id\":\"fw\"}\n", 1);
    assert!(text(&error, "remediation").starts_with("Check that --base-url"), "{error}");
}

#[test]
fn a_response_above_the_limit_is_not_read_to_its_end() {
    const LIMIT: usize = 64 << 20;
    /// An empty list in a document of this length.
    fn list(length: usize) -> String {
        let mut document = r#"{"items":[]"#.to_owned();
        document.push_str(&" ".repeat(length - document.len() - 1));
        document + "}"
    }
    let largest = Stub::new(|_| (200, list(LIMIT)));
    let client = Client::for_url(&largest.url).with_variable("SVC_TOKEN", "svc_st_x");
    assert_eq!(client.run(&["users", "list", "--tenant", "acme"]).code, Some(0));
    let larger = Stub::new(|_| (200, list(LIMIT + 1)));
    let error = error_of(&larger, &["users", "list"], "", 1);
    assert_eq!(error["code"], "unexpected_response");
    assert!(text(&error, "message").ends_with("is larger than 64 MiB"), "{error}");
    assert_eq!(larger.requests().len(), 1);
}

#[test]
fn a_list_that_repeats_its_page_ends() {
    let stub = Stub::new(|_| (200, r#"{"items":[],"next_cursor":"same"}"#.to_owned()));
    let error = error_of(&stub, &["users", "list"], "", 1);
    assert_eq!((&error["code"], stub.requests().len()), (&"unexpected_response".into(), 2));
}

/// The commands of `svc` in a text: their words with `x` in place of `<name>`, and their options.
fn commands_in(text: &str) -> Vec<(Vec<&str>, Vec<&str>)> {
    let code = text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("svc "));
    code.map(|code| {
        // The shell redirects input and output.
        let words: Vec<_> =
            code.split_whitespace().take_while(|word| !["<", ">", "|"].contains(word)).collect();
        let first_option = words.iter().position(|word| word.starts_with("--")).unwrap_or(words.len());
        let (words, options) = words.split_at(first_option);
        let words = words.iter().map(|word| if word.starts_with('<') { "x" } else { word }).collect();
        (words, options.iter().filter(|word| word.starts_with("--")).copied().collect())
    })
    .collect()
}

#[test]
fn each_command_in_a_remediation_of_the_catalog_exists_with_its_options() {
    let client = Client::new();
    let catalog = client.run(&["catalog", "show", "--output", "json"]).json();
    let commands = catalog["commands"].as_array().unwrap().iter();
    let texts: BTreeSet<_> = commands
        .flat_map(|command| command["errors"].as_array().unwrap())
        .map(|error| text(error, "remediation"))
        .collect();
    let commands: BTreeSet<_> = texts.iter().flat_map(|text| commands_in(text)).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for (words, options) in commands {
        let result = client.run(&[&words[..], &["--help"]].concat());
        assert_eq!(result.code, Some(0), "{words:?}: {result:?}");
        // A group prints its help too, but cannot be executed.
        assert!(!result.stdout.contains("<COMMAND>"), "{words:?} is a group");
        for option in options {
            assert!(result.stdout.contains(option), "{words:?} has no option {option}");
        }
    }
}
